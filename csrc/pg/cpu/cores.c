/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cores.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads two numbers; returns false if the first is missing, or is "max".  A file with
 * one number leaves `*second` alone. */
static bool
read_numbers(const char *path, int64_t *first, int64_t *second)
{
    FILE *file = fopen(path, "re");
    int got = 0;

    if (file != NULL) {
        got = fscanf(file, "%" SCNd64 " %" SCNd64, first, second);
        fclose(file);
    }
    return got > 0;
}

static int64_t
in_thousandths(int64_t quota, int64_t period)
{
    return quota > 0 && period > 0 ? quota * 1000 / period : DL_CORES_UNLIMITED;
}

/* Returns the quota of one control group: version 2 has it in one file, version 1 in
 * two. */
static int64_t
group_quota(const char *folder)
{
    char path[PATH_MAX + 32];
    int64_t quota = -1;
    int64_t period = -1;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_numbers(path, &quota, &period)) {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        read_numbers(path, &quota, &period);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        read_numbers(path, &period, &period);
    }
    return in_thousandths(quota, period);
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
    bool is_root = strcmp(group, "/") == 0;

    /* Most systems have one or two of the mounts, and each missing file costs a search. */
    if (access(mount, F_OK) != 0
        || snprintf(folder, sizeof folder, "%s%s", mount, is_root ? "" : group)
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

/* Returns the lowest quota for one line of /proc/self/cgroup:
 * "4:cpu,cpuacct:/some/group" or "0::/some/group". */
static int64_t
line_quota(const char *root, char *line)
{
    static const char *const mounts[] = {"", "/unified", "/cpu", "/cpu,cpuacct"};
    char *save = NULL;
    char *controllers = strchr(line, ':');
    int64_t least = DL_CORES_UNLIMITED;

    line[strcspn(line, "\n")] = '\0';
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) {
        return least;
    }
    *group++ = '\0';
    bool has_cpu = controllers[1] == '\0';
    for (char *word = strtok_r(controllers + 1, ",", &save); word != NULL;
         word = strtok_r(NULL, ",", &save)) {
        has_cpu = has_cpu || strcmp(word, "cpu") == 0;
    }
    for (size_t i = 0; has_cpu && i < sizeof mounts / sizeof *mounts; i++) {
        char mount[PATH_MAX];
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, mounts[i]);
        int64_t quota = least_quota(mount, group);
        least = quota < least ? quota : least;
    }
    return least;
}

int64_t
dl_cores_quota(const char *root)
{
    char line[PATH_MAX];
    int64_t least = DL_CORES_UNLIMITED;

    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    if (file == NULL) {
        return least;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        int64_t quota = line_quota(root, line);
        least = quota < least ? quota : least;
    }
    fclose(file);
    return least;
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
