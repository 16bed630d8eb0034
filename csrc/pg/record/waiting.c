/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/waiting.h"

#include <stdio.h>

static void
show_wait(dl_slice_hook *hook)
{
    dl_waiting *self = (dl_waiting *)(void *)hook;
    char text[DL_WAIT_ROW_TEXT];

    self->describe(self->subject, text);
    self->row = dl_recorder_show_wait(dl_deadline_start(self->deadline), text);
}

void
dl_waiting_begin(dl_waiting *self, dl_waiting_fn describe, const void *subject,
                 dl_deadline deadline)
{
    *self = (dl_waiting){{show_wait}, describe, subject, deadline, NULL};
    if (dl_slice_current == NULL && dl_recorder_is_on()) {
        dl_slice_current = &self->hook;
    }
}

void
dl_waiting_show(dl_waiting *self)
{
    if (dl_slice_current == &self->hook && self->hook.passed != NULL) {
        self->hook.passed = NULL;
        show_wait(&self->hook);
    }
}

void
dl_waiting_end(dl_waiting *self)
{
    if (dl_slice_current == &self->hook) {
        dl_slice_current = NULL;
        dl_recorder_hide_wait(self->row);
    }
}

void
dl_waiting_copy(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    snprintf(text, DL_WAIT_ROW_TEXT, "%s", (const char *)subject);
}
