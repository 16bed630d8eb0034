/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/wrapper/agreement.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "pg/wrapper/disagreement.h"

/* After an abort of this rank the wait ends with its cause, whatever `rank` is. */
static dl_status
watch(void *context, int rank)
{
    dl_agreement *self = context;
    const dl_agreement_options *options = &self->options;

    if (atomic_load_explicit(&self->is_aborted, memory_order_acquire)) {
        pthread_mutex_lock(&self->lock);
        dl_status status = dl_fail_again(&self->abort_cause);
        pthread_mutex_unlock(&self->lock);
        return status;
    }
    return options->watch == NULL ? DL_OK : options->watch(options->context, rank);
}

void
dl_agreement_init(dl_agreement *self, const dl_agreement_options *options)
{
    *self = (dl_agreement){.options = *options};
    self->roll = (dl_roll_call){
        .store = options->store,
        .topic = options->topic,
        .rank = options->rank,
        .size = options->size,
        .watch = watch,
        .context = self,
    };
    pthread_mutex_init(&self->lock, NULL);
}

void
dl_agreement_fini(dl_agreement *self)
{
    pthread_mutex_destroy(&self->lock);
}

void
dl_agreement_abort(dl_agreement *self, const dl_error *cause)
{
    pthread_mutex_lock(&self->lock);
    if (!atomic_load(&self->is_aborted)) {
        self->abort_cause = *cause;
        atomic_store(&self->is_aborted, true);
    }
    pthread_mutex_unlock(&self->lock);
}

/* Logs the call, in torch's words. */
static void
log_call(const dl_agreement *self, const dl_op_context *op, const dl_buffer *text)
{
    char call[DL_STATEMENT_TEXT_SIZE];

    if (dl_log_is_on(DL_LOG_TRACE)) {
        dl_statement said = dl_statement_read(dl_buffer_bytes(text));
        dl_statement_describe(&said, call, sizeof call);
        dl_log(DL_LOG_TRACE,
               "[Rank %d] Running collective: %s #%" PRIu64 " of group %s",
               self->options.rank, call, op->sequence, self->options.group_name);
    }
}

static dl_status
say(dl_agreement *self, const dl_op_context *op, const void *args)
{
    dl_buffer text = {0};

    dl_statement_write(op, args, self->options.size, &text);
    dl_buffer_put(&text, (dl_bytes){(const uint8_t *)"", 1});
    dl_status status = dl_buffer_check(&text);
    if (status == DL_OK) {
        log_call(self, op, &text);
        status = dl_roll_call_announce(&self->roll, op->sequence,
                                       (const char *)text.data, op->deadline);
    }
    dl_buffer_fini(&text);
    return status;
}

static dl_status
hear(dl_agreement *self, const dl_op_context *op, dl_buffer *words)
{
    self->roll.record = op->record;
    dl_hearing hearing = {.agreement = self, .op = op, .words = words, .gone = -1};
    dl_status status = dl_roll_call_wait(&self->roll, op->sequence, words,
                                         &hearing.gone, op->deadline);

    if (status == DL_TIMEOUT || hearing.gone >= 0) {
        return dl_disagreement_absent(&hearing, status);
    }
    DL_TRY(status);
    return dl_disagreement_look(&hearing);
}

dl_status
dl_agreement_reach(dl_agreement *self, const dl_op_context *op, const void *args)
{
    /* A group of one rank always agrees, and may have no store. */
    if (self->options.size == 1) {
        return DL_OK;
    }
    dl_buffer *words = dl_rank_values_new(self->roll.size);
    if (words == NULL) {
        return DL_NO_MEMORY;
    }
    dl_status status = say(self, op, args);
    /* This rank has completed the previous roll call, so all ranks have begun it and
     * have read the words of the one before, which can be deleted.  Those of the
     * previous one are kept: they tell what a rank that does not come did last. */
    if (status == DL_OK && op->sequence > 2) {
        dl_roll_call_delete(&self->roll, op->sequence - 2);
    }
    if (status == DL_OK) {
        status = hear(self, op, words);
    }
    dl_rank_values_free(words, self->roll.size);
    return status;
}
