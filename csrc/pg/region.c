/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pg/group_state.h"

static void
free_own(dl_region *region)
{
    munmap(region->memory, region->size);
    free(region);
}

dl_status
dl_region_new(size_t size, dl_region **region)
{
    dl_region *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made->memory == MAP_FAILED) {
        free(made);
        return dl_fail(DL_NO_MEMORY, "allocating %zu bytes for an array: %s", size,
                       strerror(errno));
    }
    made->size = size;
    made->free = free_own;
    *region = made;
    return DL_OK;
}

void
dl_region_free(dl_region *region)
{
    if (region != NULL) {
        region->free(region);
    }
}

dl_status
dl_group_share(dl_group *group, size_t size, dl_region **region)
{
    DL_TRY(dl_group_admit(group));
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    dl_status status = backend == NULL || backend->ops->share == NULL
                           ? dl_region_new(size, region)
                           : backend->ops->share(backend, size, region);
    pthread_mutex_unlock(&group->lock);
    return status;
}
