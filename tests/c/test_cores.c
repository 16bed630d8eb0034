/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>
#include <sys/stat.h>

#include "check.h"
#include "pg/cpu/cores.h"

static char root[64];

static void
write_file(const char *path, const char *text)
{
    char full[256];

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void
remove_root(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

static void
make_root(const char *cgroup)
{
    snprintf(root, sizeof root, "/tmp/distlite-cores-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    CHECK(atexit(remove_root) == 0);
    write_file("/proc/self/cgroup", cgroup);
}

CHECK_CASE(no_quota_is_unlimited)
{
    make_root("0::/job\n");
    CHECK(dl_cores_quota(root) == DL_CORES_UNLIMITED);
    write_file("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    CHECK(dl_cores_quota(root) == DL_CORES_UNLIMITED);
    CHECK(dl_cores_quota("/nowhere") == DL_CORES_UNLIMITED);
}

CHECK_CASE(version_2_takes_the_tightest_of_all_parents)
{
    make_root("0::/slice/job/step\n");
    write_file("/sys/fs/cgroup/slice/job/step/cpu.max", "400000 100000\n");
    CHECK_EQUAL(dl_cores_quota(root), 4000);
    write_file("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
    CHECK_EQUAL(dl_cores_quota(root), 1500);
    write_file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    CHECK_EQUAL(dl_cores_quota(root), 500);
}

CHECK_CASE(groups_of_version_1_are_no_quota)
{
    make_root("5:memory:/m\n4:cpuacct,cpu:/docker/abc\n3:cpuset:/\n");
    write_file("/sys/fs/cgroup/m/cpu.max", "1 100\n");
    write_file("/sys/fs/cgroup/docker/abc/cpu.max", "1 100\n");
    CHECK(dl_cores_quota(root) == DL_CORES_UNLIMITED);
}

CHECK_CASE(a_container_sees_its_quota_at_the_mount)
{
    make_root("0::/docker/unseen\n");
    write_file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    CHECK_EQUAL(dl_cores_quota(root), 2000);
}

CHECK_CASE(garbage_is_no_quota)
{
    make_root("\n::\nno colon\n0::relative\n7:cpu\n0::/job\n");
    write_file("/sys/fs/cgroup/job/cpu.max", "soon\n");
    CHECK(dl_cores_quota(root) == DL_CORES_UNLIMITED);
}

CHECK_CASE(masks_are_joined_and_the_quota_caps)
{
    dl_cores all = {.mask = {0x3}, .quota = DL_CORES_UNLIMITED};
    dl_cores one = {.mask = {0x6, 0x1}, .quota = 2900};

    CHECK_EQUAL(dl_cores_count(&all), 2);
    dl_cores_join(&all, &one);
    CHECK_EQUAL(dl_cores_count(&all), 2);
    all.quota = DL_CORES_UNLIMITED;
    CHECK_EQUAL(dl_cores_count(&all), 4);
    all.quota = 10;
    CHECK_EQUAL(dl_cores_count(&all), 1);
}

CHECK_CASE(the_own_mask_is_the_affinity)
{
    cpu_set_t allowed;
    cpu_set_t first;
    dl_cores cores;
    int cpu = 0;

    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    dl_cores_own(&cores);
    CHECK(dl_cores_count(&cores) <= CPU_COUNT(&allowed));
    CHECK(dl_cores_count(&cores) >= 1);
    while (!CPU_ISSET(cpu, &allowed)) {
        cpu++;
    }
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
    dl_cores_own(&cores);
    CHECK_EQUAL(dl_cores_count(&cores), 1);
}
