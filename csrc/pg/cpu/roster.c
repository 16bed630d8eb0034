/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/roster.h"

#include <stdlib.h>

#include "base/thread.h"

static void
free_roster(dl_backend_origin *origin)
{
    dl_roster *self = (dl_roster *)(void *)origin;

    if (self->fork_generation != dl_fork_generation()) {
        dl_membership_forget(&self->membership);
    }
    dl_membership_fini(&self->membership);
    dl_endpoint_fini(&self->endpoint);
    free(self);
}

static dl_status
meet(dl_roster *self, const dl_backend_options *options, dl_deadline deadline)
{
    dl_join work = {&self->endpoint, options, deadline};

    DL_TRY(dl_endpoint_open(&self->endpoint, options, deadline));
    dl_status status = dl_join_run(&work, &self->membership);
    dl_endpoint_hush(&self->endpoint);
    return status;
}

dl_status
dl_roster_new(const dl_backend_options *options, dl_deadline deadline,
              dl_roster **roster)
{
    dl_roster *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_backend_origin_init(&self->base, free_roster);
    self->fork_generation = dl_fork_generation();
    dl_status status = meet(self, options, deadline);
    if (status != DL_OK) {
        dl_backend_origin_unref(&self->base);
        return status;
    }
    *roster = self;
    return DL_OK;
}
