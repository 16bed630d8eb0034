/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "pg/agree/roll_call.h"
#include "pg/group_state.h"

/* Every rank announces its arrival, and rank 0 waits for all of them.  Then there is
 * one outcome for all ranks.  The first rank to write it decides: rank 0, which has
 * counted the arrivals, or another rank that rank 0 has kept waiting for too long.  So
 * no rank passes a barrier that others have given up, and ranks that come late learn
 * the outcome at once. */

#define PASSED "passed"

/* Room for an outcome and its reasons. */
#define REASON_SIZE 1200

typedef struct barrier {
    dl_group *group;
    uint64_t number;
    bool waits_for_all;
    dl_deadline deadline;
    dl_roll_call arrivals;
    dl_roll_call outcome; /* has one member, rank 0 */
} barrier;

static int64_t
timeout_milliseconds(const barrier *self)
{
    return self->deadline.limit / DL_MILLISECOND;
}

static barrier
make_barrier(dl_group *group, bool waits_for_all, dl_deadline deadline)
{
    dl_roll_call roll = {.store = group->store,
                         .topic = "monitored",
                         .rank = group->rank,
                         .size = group->size,
                         .check_rank = dl_group_check_rank,
                         .context = group};
    barrier self = {.group = group,
                    .number = atomic_fetch_add(&group->monitored, 1) + 1,
                    .waits_for_all = waits_for_all,
                    .deadline = deadline,
                    .arrivals = roll,
                    .outcome = roll};

    self.outcome.topic = "monitored-outcome";
    self.outcome.rank = 0;
    self.outcome.size = 1;
    /* All missing ranks are to be named, so the wait does not end at the first one that
     * is gone. */
    if (waits_for_all) {
        self.arrivals.check_rank = NULL;
    }
    return self;
}

/* Writes `wanted` unless there is an outcome already; `held` becomes the valid one. */
static dl_status
write_outcome(const barrier *self, const char *wanted, dl_buffer *held)
{
    char key[DL_RANK_KEY_SIZE];

    snprintf(key, sizeof key, "%s/%" PRIu64 "/0", self->outcome.topic, self->number);
    dl_buffer_clear(held);
    return dl_store_compare_set(self->group->store, dl_bytes_of(key), DL_LITERAL(""),
                                dl_bytes_of(wanted), held,
                                dl_group_deadline(self->group));
}

/* Deletes this rank's keys of the barrier before, which no rank reads after all have
 * reached this one. */
static void
delete_previous_keys(const barrier *self)
{
    if (self->number > 1) {
        dl_roll_call_delete(&self->arrivals, self->number - 1);
    }
    if (self->number > 1 && self->group->rank == 0) {
        dl_roll_call_delete(&self->outcome, self->number - 1);
    }
}

/* Turns the outcome into this rank's result. */
static dl_status
apply_outcome(const barrier *self, const dl_buffer *held, dl_status failure)
{
    int rank = self->group->rank;
    int size = held->size > REASON_SIZE ? REASON_SIZE : (int)held->size;
    const char *text = (const char *)held->data;

    if (dl_bytes_equal(dl_buffer_bytes(held), DL_LITERAL(PASSED))) {
        delete_previous_keys(self);
        return DL_OK;
    }
    dl_status status =
        rank == 0
            ? dl_fail(failure, "%.*s", size, text)
            : dl_fail(failure,
                      "Rank %d successfully reached monitoredBarrier, but received "
                      "errors while waiting for send/recv from rank 0. Please check "
                      "rank 0 logs for faulty rank.\n Original exception: \n%.*s",
                      rank, size, text);
    dl_log(DL_LOG_ERROR, "%s", dl_last_error()->text);
    return status;
}

/* Lists why each missing rank will never come, as far as that is known. */
static void
describe_gone(const barrier *self, const dl_buffer *words, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int rank = 0; rank < self->group->size && used < size; rank++) {
        if (words[rank].size == 0 && dl_group_check_rank(self->group, rank) != DL_OK) {
            used += (size_t)snprintf(text + used, size - used, "%s%.200s",
                                     used > 0 ? "; " : "", dl_last_error()->text);
        }
    }
}

static void
describe_missing(const barrier *self, const dl_buffer *words, char text[REASON_SIZE])
{
    char gone[REASON_SIZE / 2];
    dl_rank_list missing;
    int first = 0;

    dl_roll_call_list(&self->arrivals, words, &missing);
    describe_gone(self, words, gone, sizeof gone);
    if (self->waits_for_all) {
        snprintf(text, REASON_SIZE,
                 "[Rank 0]: Ranks %s failed to pass monitoredBarrier in %" PRId64
                 " ms%s%s",
                 missing.text, timeout_milliseconds(self), gone[0] == '\0' ? "" : "\n",
                 gone);
        return;
    }
    if (self->deadline.limit == 0) {
        /* No rank is at fault for a deadline that had passed before the call. */
        snprintf(text, REASON_SIZE,
                 "[Rank 0]: Rank 0 timed out in monitoredBarrier after %" PRId64
                 " ms\n%s%sranks of group %s have not called it: %s",
                 timeout_milliseconds(self), gone, gone[0] == '\0' ? "" : "; ",
                 self->group->name, missing.text);
        return;
    }
    while (first < self->group->size - 1 && words[first].size > 0) {
        first++;
    }
    snprintf(text, REASON_SIZE,
             "[Rank 0]: Rank %d failed to pass monitoredBarrier in %" PRId64
             " ms\n Original exception: \n%s%sranks of group %s have not called it: %s",
             first, timeout_milliseconds(self), gone, gone[0] == '\0' ? "" : "; ",
             self->group->name, missing.text);
}

/* Rank 0: waits for all arrivals and decides. */
static dl_status
wait_and_decide(const barrier *self, dl_buffer *words, dl_buffer *held)
{
    char reason[REASON_SIZE] = PASSED;
    int gone;
    dl_status status =
        dl_roll_call_wait(&self->arrivals, self->number, words, &gone, self->deadline);

    if (status == DL_TIMEOUT || gone >= 0) {
        describe_missing(self, words, reason);
    } else {
        DL_TRY(status);
    }
    DL_TRY(write_outcome(self, reason, held));
    return apply_outcome(self, held, status == DL_OK ? DL_TIMEOUT : status);
}

static dl_status
count_arrivals(const barrier *self, dl_buffer *held)
{
    dl_buffer *words = dl_rank_values_new(self->arrivals.size);

    if (words == NULL) {
        return DL_NO_MEMORY;
    }
    dl_status status = wait_and_decide(self, words, held);
    dl_rank_values_free(words, self->arrivals.size);
    return status;
}

/* Rank 0 is missing or gone: this rank decides for all that the barrier has failed. */
static dl_status
fail_for_rank_0(const barrier *self, dl_status status, int gone, dl_buffer *held)
{
    char reason[REASON_SIZE];
    char cause[REASON_SIZE / 2] = "it has not called it";

    if (gone >= 0) {
        snprintf(cause, sizeof cause, "%.500s", dl_last_error()->text);
    }
    snprintf(reason, sizeof reason,
             "[Rank %d]: Rank 0 failed to pass monitoredBarrier in %" PRId64
             " ms (group %s): %s",
             self->group->rank, timeout_milliseconds(self), self->group->name, cause);
    DL_TRY(write_outcome(self, reason, held));
    return apply_outcome(self, held, status);
}

/* Waits for the outcome.  While rank 0 is in the barrier it counts until its
 * own deadline, which may be later than this rank's, so this rank waits for as
 * long once more. */
static dl_status
wait_for_outcome(const barrier *self, dl_buffer *held)
{
    dl_buffer arrival = {0};
    int gone;
    dl_status status =
        dl_roll_call_wait(&self->outcome, self->number, held, &gone, self->deadline);

    if (status == DL_TIMEOUT && gone < 0) {
        DL_TRY(dl_roll_call_read(&self->arrivals, self->number, 0, &arrival));
        bool has_come = arrival.size > 0;
        dl_buffer_fini(&arrival);
        dl_deadline more = dl_deadline_after(self->deadline.limit + DL_SECOND);
        if (has_come) {
            status = dl_roll_call_wait(&self->outcome, self->number, held, &gone, more);
        }
    }
    if (status == DL_TIMEOUT || gone >= 0) {
        return fail_for_rank_0(self, status, gone, held);
    }
    return status == DL_OK ? apply_outcome(self, held, DL_TIMEOUT) : status;
}

/* Takes the lock, because another thread may be closing the group. */
static bool
is_alone(dl_group *group)
{
    pthread_mutex_lock(&group->lock);
    bool answer =
        group->size == 1
        || (group->host.backend != NULL && group->host.backend->ops->is_alone);
    pthread_mutex_unlock(&group->lock);
    return answer;
}

dl_status
dl_group_monitored_barrier(dl_group *group, bool waits_for_all, dl_deadline deadline)
{
    dl_buffer held = {0};

    DL_TRY(dl_group_admit(group));
    if (is_alone(group)) {
        return DL_OK;
    }
    barrier self = make_barrier(group, waits_for_all, deadline);
    dl_status status = dl_roll_call_announce(&self.arrivals, self.number, "here",
                                             dl_group_deadline(group));
    if (status == DL_OK) {
        status = group->rank == 0 ? count_arrivals(&self, &held)
                                  : wait_for_outcome(&self, &held);
    }
    dl_buffer_fini(&held);
    return status;
}
