/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Random calls against the table and against a model that is too simple to be wrong:
 * fixed arrays, and after every change a look at every waiter. */
#include "check.h"
#include "store/counter.h"
#include "store/table.h"

enum { KEYS = 5, WAITERS = 14, QUEUE = 64, VALUE = 64, STEPS = 60000 };

typedef struct model_waiter {
    bool is_parked;
    bool is_over; /* in the call under test */
    dl_wait_kind kind;
    int keys[6];
    int key_count;
    int seen; /* the first that many keys */
    int64_t world_size;
} model_waiter;

typedef struct model {
    bool has_value[KEYS];
    char value[KEYS][VALUE];
    int queue[KEYS][QUEUE];
    int queue_size[KEYS];
    model_waiter waiters[WAITERS];
    int pushed;
} model;

static model expected;
static dl_table table;
static dl_waiter waiters[WAITERS];
static dl_bytes wanted[WAITERS][6];
static uint64_t random_state;

static int
draw(int limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)limit);
}

static dl_bytes
key_at(int key)
{
    static const char names[] = "abcdefgh";

    /* Of different lengths, one of them empty. */
    return (dl_bytes){(const uint8_t *)names, (size_t)key};
}

static bool
model_has(int key, dl_wait_kind kind)
{
    return (kind != DL_WAIT_ITEMS && expected.has_value[key])
           || (kind != DL_WAIT_VALUES && expected.queue_size[key] > 0);
}

/* A key that the waiter has seen counts, even if it is deleted. */
static bool
model_is_satisfied(model_waiter *waiter)
{
    int64_t arrived;

    if (waiter->kind == DL_WAIT_BARRIER) {
        const char *value = expected.value[waiter->keys[0]];
        return expected.has_value[waiter->keys[0]]
               && dl_counter_parse(dl_bytes_of(value), &arrived)
               && arrived >= waiter->world_size;
    }
    while (waiter->seen < waiter->key_count
           && model_has(waiter->keys[waiter->seen], waiter->kind)) {
        waiter->seen++;
    }
    return waiter->seen == waiter->key_count;
}

static void
model_end(model_waiter *waiter)
{
    waiter->is_parked = false;
    waiter->is_over = true;
}

static void
model_look(void)
{
    for (int i = 0; i < WAITERS; i++) {
        model_waiter *waiter = &expected.waiters[i];
        if (waiter->is_parked && model_is_satisfied(waiter)) {
            model_end(waiter);
        }
    }
}

static void
model_set(int key, const char *value)
{
    expected.has_value[key] = true;
    snprintf(expected.value[key], VALUE, "%s", value);
    model_look();
}

static int
model_pop(int key)
{
    int item = expected.queue[key][0];

    expected.queue_size[key]--;
    memmove(expected.queue[key], expected.queue[key] + 1,
            sizeof(int) * (size_t)expected.queue_size[key]);
    return item;
}

static void
model_push(int key, int item)
{
    expected.queue[key][expected.queue_size[key]++] = item;
    model_look();
}

static void
check_item(dl_blob *item, int number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    CHECK(item != NULL);
    CHECK(dl_bytes_equal(dl_blob_bytes(item), dl_bytes_of(text)));
    dl_blob_unref(item);
}

static void
step_set(int key)
{
    char text[VALUE];

    snprintf(text, sizeof text, draw(4) == 0 ? "text" : "%d", draw(6));
    CHECK_OK(dl_table_set(&table, key_at(key), dl_bytes_of(text)));
    model_set(key, text);
}

static void
step_append(int key)
{
    char text[VALUE] = "";

    if (expected.has_value[key]) {
        memcpy(text, expected.value[key], VALUE);
    }
    if (strlen(text) + 2 > VALUE) {
        return;
    }
    strcat(text, "1");
    CHECK_OK(dl_table_append(&table, key_at(key), DL_LITERAL("1")));
    model_set(key, text);
}

static void
step_add(int key)
{
    char text[VALUE];
    int64_t held = 0, sum, delta = draw(5) - 1;
    bool is_number = !expected.has_value[key]
                     || dl_counter_parse(dl_bytes_of(expected.value[key]), &held);
    dl_status status = dl_table_add(&table, key_at(key), delta, &sum);

    CHECK_EQUAL(status, is_number ? DL_OK : DL_INVALID);
    if (is_number) {
        sum = (int64_t)((uint64_t)held + (uint64_t)delta);
        snprintf(text, sizeof text, "%lld", (long long)sum);
        model_set(key, text);
    }
}

static void
step_compare_set(int key)
{
    static const char *const texts[] = {"", "text", "1", "2"};
    const char *wanted = texts[draw(4)], *desired = texts[draw(4)];
    dl_blob *held;

    CHECK_OK(dl_table_compare_set(&table, key_at(key), dl_bytes_of(wanted),
                                  dl_bytes_of(desired), &held));
    const char *now = expected.has_value[key] ? expected.value[key] : "";
    if (strcmp(now, wanted) == 0) {
        model_set(key, desired);
    }
    CHECK((held != NULL) == expected.has_value[key]);
    CHECK(held == NULL
          || dl_bytes_equal(dl_blob_bytes(held), dl_bytes_of(expected.value[key])));
}

static void
step_delete(int key)
{
    CHECK(dl_table_delete(&table, key_at(key)) == expected.has_value[key]);
    expected.has_value[key] = false;
}

static void
step_push(int key)
{
    char text[16];

    if (expected.queue_size[key] == QUEUE) {
        return;
    }
    snprintf(text, sizeof text, "%d", ++expected.pushed);
    CHECK_OK(dl_table_queue_push(&table, key_at(key), dl_bytes_of(text)));
    model_push(key, expected.pushed);
}

static void
step_pop(int key)
{
    dl_blob *item = NULL;
    int64_t size = dl_table_queue_pop(&table, key_at(key), &item);

    CHECK_EQUAL(size, expected.queue_size[key]);
    if (size > 0) {
        check_item(item, model_pop(key));
    }
}

static void
step_barrier(int slot, int key)
{
    model_waiter *waiter = &expected.waiters[slot];
    int64_t held = 0, world_size = draw(6);
    char text[VALUE];
    bool is_number = !expected.has_value[key]
                     || dl_counter_parse(dl_bytes_of(expected.value[key]), &held);

    CHECK_EQUAL(
        dl_table_barrier(&table, &waiters[slot], key_at(key), world_size, false),
        is_number ? DL_OK : DL_INVALID);
    if (!is_number) {
        return;
    }
    *waiter = (model_waiter){.kind = DL_WAIT_BARRIER,
                             .keys = {key},
                             .key_count = 1,
                             .world_size = world_size,
                             .is_parked = true};
    snprintf(text, sizeof text, "%lld", (long long)((uint64_t)held + 1));
    model_set(key, text);
    /* The call reports its own end. */
    CHECK(waiters[slot].is_parked == waiter->is_parked);
    waiter->is_over = false;
}

static void
step_wait(int slot)
{
    model_waiter *waiter = &expected.waiters[slot];
    dl_bytes *keys = wanted[slot];
    dl_wait_kind kind = (dl_wait_kind)draw(DL_WAIT_BARRIER);

    *waiter = (model_waiter){.kind = kind, .key_count = draw(7)};
    for (int i = 0; i < waiter->key_count; i++) {
        waiter->keys[i] = draw(KEYS);
        keys[i] = key_at(waiter->keys[i]);
    }
    CHECK_OK(
        dl_table_wait(&table, &waiters[slot], kind, keys, (size_t)waiter->key_count));
    waiter->is_parked = !model_is_satisfied(waiter);
    CHECK(waiters[slot].is_parked == waiter->is_parked);
}

static void
step_waiter(int slot, int key)
{
    if (expected.waiters[slot].is_parked) {
        dl_table_cancel(&table, &waiters[slot]);
        expected.waiters[slot].is_parked = false;
    } else if (draw(4) == 0) {
        step_barrier(slot, key);
    } else {
        step_wait(slot);
    }
}

static void
check_ready(void)
{
    dl_waiter *ready;

    while ((ready = dl_table_take_ready(&table)) != NULL) {
        model_waiter *waiter = &expected.waiters[ready - waiters];
        CHECK(waiter->is_over && !ready->is_parked);
        waiter->is_over = false;
    }
    for (int i = 0; i < WAITERS; i++) {
        CHECK(!expected.waiters[i].is_over);
        CHECK(expected.waiters[i].is_parked == waiters[i].is_parked);
    }
}

static void
check_contents(void)
{
    int64_t count = 0;

    for (int key = 0; key < KEYS; key++) {
        dl_bytes name = key_at(key);
        dl_blob *held = dl_table_get(&table, name);
        CHECK((held != NULL) == expected.has_value[key]);
        CHECK(held == NULL
              || dl_bytes_equal(dl_blob_bytes(held), dl_bytes_of(expected.value[key])));
        CHECK_EQUAL(dl_table_queue_size(&table, name), expected.queue_size[key]);
        CHECK(dl_table_has(&table, name) == model_has(key, DL_WAIT_KEYS));
        count += expected.has_value[key];
    }
    CHECK_EQUAL(dl_table_num_keys(&table), count);
}

static void
step(void)
{
    static void (*const steps[])(int) = {
        step_set,    step_append, step_add,  step_compare_set,
        step_delete, step_delete, step_push, step_pop,
    };
    int choice = draw(14);

    if (choice < 8) {
        steps[choice](draw(KEYS));
    } else {
        step_waiter(draw(WAITERS), draw(KEYS));
    }
}

static void
tear_down(void)
{
    for (int i = 0; i < WAITERS; i++) {
        dl_table_cancel(&table, &waiters[i]);
    }
    for (int key = 0; key < KEYS; key++) {
        while (expected.queue_size[key] > 0) {
            step_pop(key);
        }
        dl_table_delete(&table, key_at(key));
    }
    CHECK_EQUAL(table.entries.count, 0);
    dl_table_fini(&table);
}

static void
compare(uint64_t seed)
{
    random_state = seed;
    dl_table_init(&table);
    for (int i = 0; i < STEPS; i++) {
        step();
        check_ready();
        check_contents();
    }
    tear_down();
}

CHECK_CASE(the_table_does_what_the_model_does)
{
    compare(UINT64_C(0x9e3779b97f4a7c15));
}

CHECK_CASE(and_with_another_seed)
{
    compare(UINT64_C(0xd1b54a32d192ed03));
}
