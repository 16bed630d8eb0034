/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/waiting.h"

#include "base/interrupt.h"

static _Thread_local bool is_within; /* a call that may wait */

static void
show(void *context)
{
    dl_waiting *self = context;
    char text[DL_WAIT_ROW_TEXT];

    self->describe(self->subject, text);
    self->row = dl_recorder_show_wait(self->since, text);
}

void
dl_waiting_begin(dl_waiting *self, dl_waiting_fn describe, const void *subject,
                 dl_deadline deadline)
{
    *self = (dl_waiting){.is_outer = !is_within && dl_recorder_is_on()};
    if (self->is_outer) {
        is_within = true;
        self->describe = describe;
        self->subject = subject;
        self->since = dl_deadline_start(deadline);
        dl_slice_set_hook(show, self);
    }
}

void
dl_waiting_show(dl_waiting *self)
{
    if (self->is_outer && self->row == NULL) {
        dl_slice_set_hook(NULL, NULL);
        show(self);
    }
}

void
dl_waiting_end(dl_waiting *self)
{
    if (self->is_outer) {
        is_within = false;
        dl_slice_set_hook(NULL, NULL);
        dl_recorder_hide_wait(self->row);
    }
}
