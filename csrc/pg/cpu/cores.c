/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cores.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns the quota of one control group, whose file has two numbers, or "max" in place
 * of the first. */
static int64_t
group_quota(const char *folder)
{
    char path[PATH_MAX + 32];
    int64_t quota = 0;
    int64_t period = 0;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return DL_CORES_UNLIMITED;
    }
    int got = fscanf(file, "%" SCNd64 " %" SCNd64, &quota, &period);
    fclose(file);
    return got == 2 && quota > 0 && period > 0 ? quota * 1000 / period
                                               : DL_CORES_UNLIMITED;
}

/* Returns the lowest quota of a group and its parents up to the mount.  In a container,
 * `group` may be a path of the host that does not exist here; the quota that applies is
 * then at the mount itself. */
static int64_t
least_quota(const char *mount, const char *group)
{
    char folder[PATH_MAX];
    int64_t least = DL_CORES_UNLIMITED;
    size_t mount_size = strlen(mount);

    if (snprintf(folder, sizeof folder, "%s%s", mount,
                 strcmp(group, "/") == 0 ? "" : group)
        >= (int)sizeof folder) {
        return least;
    }
    for (;;) {
        int64_t quota = group_quota(folder);
        least = quota < least ? quota : least;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount_size) {
            return least;
        }
        *slash = '\0';
    }
}

int64_t
dl_cores_quota(const char *root)
{
    static const char own_group[] = "0::";
    char line[PATH_MAX];
    char mount[PATH_MAX];
    int64_t quota = DL_CORES_UNLIMITED;

    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    if (file == NULL) {
        return quota;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, own_group, sizeof own_group - 1) == 0) {
            quota = least_quota(mount, line + sizeof own_group - 1);
        }
    }
    fclose(file);
    return quota;
}

void
dl_cores_own(dl_cores *cores)
{
    _Static_assert(sizeof cores->mask % sizeof(cpu_set_t) == 0, "whole sets");
    /* Read once: that takes longer than much of what else a group needs. */
    static _Atomic int64_t quota;
    if (quota == 0) {
        quota = dl_cores_quota("");
    }
    *cores = (dl_cores){.quota = quota};
    if (sched_getaffinity(0, sizeof cores->mask, (cpu_set_t *)(void *)cores->mask)
        < 0) {
        memset(cores->mask, 0, sizeof cores->mask);
    }
}

void
dl_cores_join(dl_cores *all, const dl_cores *one)
{
    for (int i = 0; i < DL_CORES_WORDS; i++) {
        all->mask[i] |= one->mask[i];
    }
    all->quota = one->quota < all->quota ? one->quota : all->quota;
}

int
dl_cores_count(const dl_cores *cores)
{
    int count = 0;

    for (int i = 0; i < DL_CORES_WORDS; i++) {
        count += __builtin_popcountll(cores->mask[i]);
    }
    if (cores->quota / 1000 < count) {
        count = (int)(cores->quota / 1000);
    }
    return count > 0 ? count : 1;
}
