/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/hash_store.h"
#include "store/prefix_store.h"
#include "store_suite.h"

/* Borrows a store for a moment: the view holds the only reference that is kept. */
static dl_store *
view_of(dl_store *below, dl_bytes prefix)
{
    dl_store *store;

    CHECK_OK(dl_prefix_store_new(prefix, below, &store));
    dl_store_unref(below);
    return store;
}

static dl_store *
make_hash(void)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    return store;
}

static dl_store *
make_view(void)
{
    return view_of(make_hash(), DL_LITERAL("prefix"));
}

static dl_store *
make_nested(void)
{
    return view_of(view_of(make_hash(), DL_LITERAL("")), DL_LITERAL("b/"));
}

static const suite_kind view = {
    .make = make_view, .has_queues = true, .close_leaves_blocked = true};
static const suite_kind nested = {
    .make = make_nested, .has_queues = true, .close_leaves_blocked = true};
STORE_SUITE(view)
STORE_SUITE(nested)

CHECK_CASE(keys_are_joined_literally)
{
    static const struct {
        dl_bytes prefix;
        dl_bytes whole;
    } rows[] = {
        {DL_LITERAL("p"), DL_LITERAL("p/k")},
        {DL_LITERAL(""), DL_LITERAL("/k")},
        {DL_LITERAL("a/"), DL_LITERAL("a//k")},
        {DL_LITERAL("z\0"), DL_LITERAL("z\0/k")},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dl_store *below = make_hash();
        dl_store *store = view_of(dl_store_ref(below), rows[i].prefix);
        CHECK(dl_bytes_equal(dl_prefix_store_prefix(store), rows[i].prefix));
        SUITE_SET(store, DL_LITERAL("k"), "1");
        SUITE_HOLDS(below, rows[i].whole, "1");
        dl_store_unref(store);
        dl_store_unref(below);
    }
}

CHECK_CASE(nesting_joins_from_the_outside_in)
{
    dl_store *below = make_hash();
    dl_store *store =
        view_of(view_of(dl_store_ref(below), DL_LITERAL("P")), DL_LITERAL("Q"));

    SUITE_SET(store, DL_LITERAL("k"), "1");
    SUITE_HOLDS(below, DL_LITERAL("P/Q/k"), "1");
    dl_store_unref(store);
    dl_store_unref(below);
}

CHECK_CASE(listing_shows_own_keys_only)
{
    dl_store *below = make_hash();
    dl_store *store = view_of(dl_store_ref(below), DL_LITERAL("P"));
    int counts[256] = {0};

    /* Siblings that merely begin alike, and a key that is the prefix. */
    SUITE_SET(below, DL_LITERAL("PX"), "1");
    SUITE_SET(below, DL_LITERAL("Po/x"), "1");
    SUITE_SET(below, DL_LITERAL("P"), "1");
    SUITE_SET(below, A, "1");
    SUITE_SET(store, A, "1");
    SUITE_SET(store, B, "1");
    CHECK_OK(dl_store_list_keys(store, suite_visit, counts, SOON));
    CHECK_EQUAL(counts['a'], 1);
    CHECK_EQUAL(counts['b'], 1);
    CHECK_EQUAL(suite_num_keys(store), 6);
    dl_store_unref(store);
    dl_store_unref(below);
}

typedef struct meeting {
    dl_store *below;
    dl_store *views[2];
} meeting;

static void
meet(int rank, int size, void *context)
{
    meeting *place = context;

    CHECK_OK(rank < 2
                 ? dl_store_barrier(place->views[rank], DL_LITERAL("k"), size, SOON)
                 : dl_store_barrier(place->below, DL_LITERAL("P/k"), size, SOON));
}

CHECK_CASE(a_barrier_includes_callers_that_use_the_whole_key)
{
    dl_store *below = make_hash();
    meeting place = {below,
                     {view_of(dl_store_ref(below), DL_LITERAL("P")),
                      view_of(dl_store_ref(below), DL_LITERAL("P"))}};

    dl_run_ranks(4, meet, &place);
    dl_store_unref(place.views[0]);
    dl_store_unref(place.views[1]);
    dl_store_unref(below);
}

/* A store below that has a barrier of its own gets the call, not its pieces. */
static char barrier_key[32];

static dl_status
note_barrier(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
             dl_deadline deadline)
{
    (void)store;
    (void)reply;
    (void)deadline;
    CHECK_EQUAL(request->op, DL_OP_BARRIER);
    CHECK_EQUAL(request->number, 7);
    snprintf(barrier_key, sizeof barrier_key, "%.*s", (int)request->key.size,
             (const char *)request->key.data);
    return dl_fail(DL_CANCELLED, "noted");
}

static void
free_nothing(dl_store *store)
{
    (void)store;
}

CHECK_CASE(a_barrier_is_that_of_the_store_below)
{
    static const dl_store_ops ops = {.requests = DL_REQUEST(DL_OP_BARRIER),
                                     .execute = note_barrier,
                                     .free = free_nothing};
    dl_store below;

    dl_store_init(&below, &ops);
    dl_store *store = view_of(view_of(&below, DL_LITERAL("P")), DL_LITERAL("Q"));
    CHECK_STATUS(dl_store_barrier(store, DL_LITERAL("k"), 7, SOON), DL_CANCELLED);
    CHECK_TEXT(barrier_key, "P/Q/k");
    CHECK(!dl_store_has_extended_api(store));
    dl_store_unref(store);
}

CHECK_CASE(the_timeout_is_that_of_the_store_below)
{
    dl_store *below = make_hash();
    dl_store *store = view_of(view_of(dl_store_ref(below), A), B);

    dl_store_set_timeout(store, 5);
    CHECK_EQUAL(dl_store_timeout(below), 5);
    dl_store_set_timeout(below, 6);
    CHECK_EQUAL(dl_store_timeout(store), 6);
    CHECK(dl_store_has_extended_api(store));
    dl_store_unref(store);
    dl_store_unref(below);
}

CHECK_CASE(errors_name_the_whole_key)
{
    dl_store *store = make_view();
    dl_buffer value = {0};

    CHECK_STATUS(dl_store_get(store, A, &value, MS(0)), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 0ms, keys: prefix/a");
    dl_store_unref(store);
}

CHECK_CASE(closing_a_view_leaves_the_store_below_open)
{
    dl_store *below = make_hash();
    dl_store *store = view_of(dl_store_ref(below), A);

    dl_store_close(store);
    SUITE_SET(below, A, "1");
    dl_store_unref(store);
    SUITE_HOLDS(below, A, "1");
    dl_store_close(below);
    store = view_of(below, A);
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_CLOSED);
    CHECK_TEXT(dl_last_error()->text, "this HashStore is closed");
    dl_store_unref(store);
}

CHECK_CASE(without_memory_calls_fail)
{
    dl_store *below = make_hash(), *store = NULL;
    dl_bytes keys[2] = {A, B};

    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_prefix_store_new(A, below, &store), DL_NO_MEMORY);
    CHECK(store == NULL);
    store = view_of(below, A);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_wait(store, keys, 2, MS(0)), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_clone(store, &store, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(0);
    dl_store_unref(store);
}
