/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of the store interface: what they check, and what they do for a kind
 * without an entry. */
#include "store/hash_store.h"
#include "store/store.h"
#include "store_suite_base.h"

/* A kind with the least of entries, over a HashStore. */
typedef struct plain_store {
    dl_store base;
    dl_store *hash;
    int closed;
    int freed;
    atomic_int sets;
} plain_store;

static dl_store *
hash_of(dl_store *store)
{
    return ((plain_store *)store)->hash;
}

static dl_status
plain_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
              dl_deadline deadline)
{
    atomic_fetch_add(&((plain_store *)store)->sets, request->op == DL_OP_SET);
    return dl_store_execute(hash_of(store), request, reply, deadline);
}

static void
plain_close(dl_store *store)
{
    ((plain_store *)store)->closed++;
}

static void
plain_free(dl_store *store)
{
    ((plain_store *)store)->freed++;
    dl_store_unref(hash_of(store));
}

static const dl_store_ops plain_ops = {
    .kind = "PlainStore",
    .requests = DL_REQUEST(DL_OP_SET) | DL_REQUEST(DL_OP_GET) | DL_REQUEST(DL_OP_ADD)
                | DL_REQUEST(DL_OP_COMPARE_SET) | DL_REQUEST(DL_OP_CHECK),
    .execute = plain_execute,
    .close = plain_close,
    .free = plain_free,
};

static plain_store plain;

static dl_store *
make_plain(void)
{
    plain = (plain_store){0};
    dl_store_init(&plain.base, &plain_ops);
    CHECK_OK(dl_hash_store_new(&plain.hash));
    return &plain.base;
}

CHECK_CASE(the_last_reference_closes_then_frees)
{
    dl_store *store = make_plain();

    CHECK(dl_store_ref(store) == store);
    dl_store_unref(store);
    CHECK_EQUAL(plain.closed + plain.freed, 0);
    dl_store_unref(store);
    CHECK_EQUAL(plain.closed, 1);
    CHECK_EQUAL(plain.freed, 1);
    dl_store_unref(NULL);
}

CHECK_CASE(closing_happens_once)
{
    dl_store *store = make_plain();

    dl_store_close(store);
    dl_store_close(store);
    CHECK_EQUAL(plain.closed, 1);
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_CLOSED);
    CHECK_TEXT(dl_last_error()->text, "this PlainStore is closed");
    dl_store_unref(store);
    CHECK_EQUAL(plain.closed, 1);
    CHECK_EQUAL(plain.freed, 1);
}

CHECK_CASE(a_forked_child_frees_without_closing)
{
    dl_store *store = make_plain();
    int parent = (int)getpid(), status = -1;
    char text[128];

    CHECK(!dl_store_is_inherited(store));
    pid_t child = fork();
    if (child == 0) {
        CHECK(dl_store_is_inherited(store));
        CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_CLOSED);
        snprintf(text, sizeof text,
                 "this PlainStore was created in process %d; a forked child must "
                 "create its own",
                 parent);
        CHECK_TEXT(dl_last_error()->text, text);
        dl_store_unref(store);
        CHECK_EQUAL(plain.closed, 0);
        CHECK_EQUAL(plain.freed, 1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    dl_store_unref(store);
}

CHECK_CASE(an_operation_that_a_kind_lacks_is_named)
{
    static const dl_store_ops ops = {.kind = "EmptyStore", .free = plain_free};
    plain_store empty = {0};
    dl_store *store = &empty.base, *clone;
    dl_buffer value = {0};
    int64_t number;
    bool answer;

    dl_store_init(store, &ops);
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_UNSUPPORTED);
    CHECK_TEXT(dl_last_error()->text, "Not implemented: EmptyStore has no set()");
    CHECK_STATUS(dl_store_get(store, A, &value, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_add(store, A, 1, &number, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_compare_set(store, A, B, C, &value, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_delete_key(store, A, &answer, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_check(store, NULL, 0, &answer, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_wait(store, NULL, 0, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_num_keys(store, &number, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_list_keys(store, NULL, NULL, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_append(store, A, B, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_queue_push(store, A, B, SOON), DL_UNSUPPORTED);
    CHECK_TEXT(dl_last_error()->text,
               "queue support is not implemented. EmptyStore has no queue_push()");
    CHECK_STATUS(dl_store_queue_pop(store, A, true, &value, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_queue_len(store, A, &number, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_barrier(store, A, 2, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_clone(store, &clone, SOON), DL_UNSUPPORTED);
    CHECK(!dl_store_has_extended_api(store));
    dl_store_unref(store);
}

CHECK_CASE(nothing_over_the_limits_reaches_the_kind)
{
    dl_store *store = make_plain();
    uint8_t *memory = calloc(1, (size_t)DL_STORE_VALUE_LIMIT + 1);
    dl_bytes keys[2] = {A, {memory, DL_STORE_KEY_LIMIT + 1}};
    dl_bytes values[2] = {A, {memory, (size_t)DL_STORE_VALUE_LIMIT + 1}};

    CHECK_STATUS(dl_store_set(store, keys[1], A, SOON), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "a key of 8192 bytes is longer than the limit of 8191 bytes");
    CHECK_STATUS(dl_store_set(store, A, values[1], SOON), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "a value of 8388609 bytes is longer than the limit of 8388608 bytes");
    /* The good half of a call is not done either. */
    CHECK_STATUS(dl_store_multi_set(store, keys, keys, 2, SOON), DL_INVALID);
    CHECK_STATUS(dl_store_multi_set(store, values, values, 2, SOON), DL_INVALID);
    CHECK_EQUAL(atomic_load(&plain.sets), 0);
    dl_store_unref(store);
    free(memory);
}

CHECK_CASE(the_generic_wait_looks_until_the_keys_are_there)
{
    dl_store *store = make_plain();
    const dl_bytes keys[] = {A, B};
    suite_call call = {
        .store = store, .keys = keys, .count = 2, .limit = 15 * DL_SECOND};

    CHECK_STATUS(dl_store_wait(store, keys, 2, MS(30)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 30ms, keys: a, b");
    CHECK_STATUS(dl_store_wait(store, keys, 2, MS(0)), DL_TIMEOUT);
    SUITE_SET(store, A, "1");
    CHECK_STATUS(dl_store_wait(store, keys, 2, MS(0)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 0ms, keys: b");
    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_sleep_until(MS(20)));
    SUITE_SET(store, B, "1");
    SUITE_JOIN(&call, DL_OK);
    CHECK_OK(dl_store_wait(store, keys, 2, MS(0)));
    dl_store_unref(store);
}

static dl_status
deleting_execute(dl_store *store, const dl_store_request *request,
                 dl_store_reply *reply, dl_deadline deadline)
{
    bool existed;

    DL_TRY(plain_execute(store, request, reply, deadline));
    return request->op == DL_OP_CHECK
               ? dl_store_delete_key(hash_of(store), request->keys[0], &existed, SOON)
               : DL_OK;
}

CHECK_CASE(a_key_that_is_deleted_while_it_is_read_is_absent)
{
    dl_store *store = make_plain();
    dl_store_ops ops = plain_ops;
    dl_buffer value = {0};

    SUITE_SET(store, A, "1");
    CHECK_OK(dl_store_get_if_set(store, A, &value, SOON));
    CHECK_BYTES(dl_buffer_bytes(&value), "1");
    ops.execute = deleting_execute;
    store->ops = &ops;
    int64_t start = dl_now();
    CHECK_OK(dl_store_get_if_set(store, A, &value, dl_deadline_after(20 * DL_SECOND)));
    CHECK(dl_now() - start < CHECK_SLACK);
    CHECK_EQUAL(value.size, 0);
    store->ops = &plain_ops;
    dl_buffer_fini(&value);
    dl_store_unref(store);
}

CHECK_CASE(the_generic_append_extends)
{
    dl_store *store = make_plain();

    CHECK_OK(dl_store_append(store, A, DL_LITERAL(""), SOON));
    SUITE_HOLDS(store, A, "");
    CHECK_OK(dl_store_append(store, B, DL_LITERAL("x"), SOON));
    CHECK_OK(dl_store_append(store, B, DL_LITERAL("x"), SOON));
    CHECK_OK(dl_store_append(store, B, DL_LITERAL("\0"), SOON));
    SUITE_HOLDS(store, B, "xx\0");
    dl_store_unref(store);
}

static void
append_own_letter(int rank, int size, void *store)
{
    uint8_t letter = (uint8_t)('a' + rank);

    (void)size;
    for (int i = 0; i < 20; i++) {
        CHECK_OK(dl_store_append(store, A, (dl_bytes){&letter, 1}, SOON));
    }
}

CHECK_CASE(generic_appends_of_different_bytes_are_all_kept)
{
    dl_store *store = make_plain();
    dl_buffer held = {0};
    int counts[256] = {0};

    dl_run_ranks(4, append_own_letter, store);
    CHECK_OK(dl_store_get(store, A, &held, SOON));
    for (size_t i = 0; i < held.size; i++) {
        counts[held.data[i]]++;
    }
    for (int rank = 0; rank < 4; rank++) {
        CHECK_EQUAL(counts['a' + rank], 20);
    }
    dl_buffer_fini(&held);
    dl_store_unref(store);
}

CHECK_CASE(generic_multi_calls_are_loops)
{
    dl_store *store = make_plain();
    const dl_bytes keys[] = {A, B};
    const dl_bytes values[] = {C, A};
    dl_buffer held[2] = {0};

    CHECK_OK(dl_store_multi_set(store, keys, values, 2, SOON));
    CHECK_EQUAL(atomic_load(&plain.sets), 2);
    CHECK_OK(dl_store_multi_get(store, keys, 2, held, SOON));
    CHECK_BYTES(dl_buffer_bytes(&held[0]), "c");
    CHECK_BYTES(dl_buffer_bytes(&held[1]), "a");
    dl_buffer_fini(&held[0]);
    dl_buffer_fini(&held[1]);
    dl_store_unref(store);
}

CHECK_CASE(the_generic_barrier_uses_two_known_keys)
{
    dl_store *store = make_plain();

    CHECK_STATUS(dl_store_barrier(store, DL_LITERAL("bb"), 2, MS(20)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "barrier timeout after 20ms, key: bb");
    SUITE_HOLDS(store, DL_LITERAL("bb/num_members"), "1");
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("bb"), 2, MS(0)));
    SUITE_HOLDS(store, DL_LITERAL("bb/num_members"), "2");
    SUITE_HOLDS(store, DL_LITERAL("bb/last_member"), "1");
    /* A rank that comes late, or finds that the last one died before it opened the
     * barrier, passes. */
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("bb"), 2, MS(0)));
    CHECK_EQUAL(suite_add(store, DL_LITERAL("cc/num_members"), 2), 2);
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("cc"), 2, MS(0)));
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("none"), 0, MS(0)));
    CHECK(!suite_exists(store, DL_LITERAL("none/num_members")));
    dl_store_unref(store);
}

static void
meet(int rank, int size, void *store)
{
    (void)rank;
    CHECK_OK(dl_store_barrier(store, A, size, SOON));
}

CHECK_CASE(the_generic_barrier_lets_all_through)
{
    dl_store *store = make_plain();

    dl_run_ranks(6, meet, store);
    dl_store_unref(store);
}

CHECK_CASE(without_memory_generic_calls_fail)
{
    dl_store *store = make_plain();

    SUITE_SET(store, A, "1");
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_append(store, A, B, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_barrier(store, A, 1, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(2);
    CHECK_STATUS(dl_store_barrier(store, A, 1, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(0);
    SUITE_HOLDS(store, A, "1");
    dl_store_unref(store);
}

CHECK_CASE(a_timeout_shows_keys_that_are_no_text)
{
    const dl_bytes keys[] = {DL_LITERAL("a\0b"), DL_LITERAL("\x1b[2J\n"), C};

    CHECK_STATUS(dl_store_fail_timeout("/", keys, 3, MS(20)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text,
               "wait timeout after 20ms, keys: /a\\x00b, /\\x1b[2J\\x0a, /c");
    CHECK_STATUS(dl_store_fail_barrier_timeout(keys[1], MS(20)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "barrier timeout after 20ms, key: \\x1b[2J\\x0a");
}

CHECK_CASE(a_timeout_of_many_keys_is_cut_and_counted)
{
    enum { COUNT = 400 };
    char names[COUNT][32];
    dl_bytes keys[COUNT];
    uint8_t long_name[DL_STORE_KEY_LIMIT];

    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "a rather long key %d", i);
        keys[i] = dl_bytes_of(names[i]);
    }
    CHECK_STATUS(dl_store_fail_timeout("/", keys, 2, MS(1500)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text,
               "wait timeout after 1500ms, keys: /a rather long key 0, /a rather long "
               "key 1");
    CHECK_STATUS(dl_store_fail_timeout("/", keys, COUNT, MS(0)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "/a rather long key 30, ");
    CHECK_CONTAINS(dl_last_error()->text, ", ... (400 in all)");
    CHECK(strlen(dl_last_error()->text) < DL_ERROR_TEXT_SIZE - 100);
    memset(long_name, 'x', sizeof long_name);
    keys[0] = (dl_bytes){long_name, sizeof long_name};
    CHECK_STATUS(dl_store_fail_timeout("/", keys, 1, MS(0)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "... (1 in all)");
    CHECK_STATUS(dl_store_fail_timeout("", keys, 0, MS(0)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 0ms, keys: ");
}
