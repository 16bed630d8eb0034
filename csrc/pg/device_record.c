/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Records the operations of a group's side for devices, which end with their works. */
#include <stdlib.h>
#include <string.h>

#include "base/call_site.h"
#include "pg/device_state.h"

/* The records of one call, completed when its work ends. */
typedef struct ending {
    dl_work_notice notice;
    const dl_work *work;
    size_t count;
    dl_record *records[];
} ending;

static dl_record *
post(const dl_device_side *self, const dl_device_item *item, dl_deadline deadline)
{
    const dl_message_args *message = item->args;

    return dl_recorder_post(&self->seat, &item->fingerprint, message->tag, deadline);
}

dl_status
dl_device_record_queue(dl_device_side *self, dl_device_item *item, dl_deadline deadline)
{
    char site[DL_CALL_SITE_TEXT_SIZE];

    item->call_site = NULL;
    item->record = dl_op_type_is_message((uint8_t)item->op)
                       ? post(self, item, deadline)
                       : dl_recorder_queue(&self->seat, &item->fingerprint, deadline);
    if (!self->is_detailed) {
        return DL_OK;
    }
    /* Noted now, because the thread is elsewhere when the batch is issued. */
    dl_call_site_describe(site, sizeof site);
    item->call_site = strdup(site);
    return item->call_site == NULL ? dl_fail_no_memory() : DL_OK;
}

/* Completes the record of an item that is still in its batch, and so never began. */
void
dl_device_record_forget(dl_device_item *item)
{
    dl_recorder_end(item->record, DL_CANCELLED);
    item->record = NULL;
    free(item->call_site);
    item->call_site = NULL;
}

void
dl_device_record_start(dl_device_side *self, dl_device_item *items,
                       const dl_device_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        dl_device_item *item = &items[i];
        if (!dl_op_type_is_message((uint8_t)item->op)) {
            item->sequence = ++self->sequence;
            item->record =
                dl_recorder_start(&self->seat, item->record, &item->fingerprint,
                                  item->sequence, call->deadline);
        } else if (item->record == NULL) {
            item->record = post(self, item, call->deadline);
        }
    }
}

/* Runs on the thread that ends the work. */
static void
end_all(dl_work_notice *notice)
{
    ending *self = DL_LIST_ENTRY(notice, ending, notice);

    for (size_t i = 0; i < self->count; i++) {
        dl_recorder_end(self->records[i], self->work->status);
    }
    free(self);
}

static ending *
ending_new(const dl_device_item *items, size_t count, const dl_work *work)
{
    ending *self = malloc(sizeof *self + count * sizeof *self->records);

    if (self != NULL) {
        *self = (ending){.notice.call = end_all, .work = work, .count = count};
        for (size_t i = 0; i < count; i++) {
            self->records[i] = items[i].record;
        }
    }
    return self;
}

/* Without memory the records end now, which is better than operations that seem
 * to run forever. */
void
dl_device_record_end(dl_device_item *items, size_t count, dl_status status,
                     dl_work *work)
{
    ending *made = status == DL_OK ? ending_new(items, count, work) : NULL;

    if (made != NULL) {
        dl_work_notify(work, &made->notice);
    }
    for (size_t i = 0; i < count; i++) {
        if (made == NULL) {
            dl_recorder_end(items[i].record, status);
        }
        items[i].record = NULL;
    }
}
