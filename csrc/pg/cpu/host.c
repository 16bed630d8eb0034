/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the kernel's boot id, or the host name where there is none. */
static void
read_boot(char *text, size_t room)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, room - 1);

    if (fd >= 0) {
        close(fd);
    }
    if (size <= 0) {
        (void)gethostname(text, room - 1);
        return;
    }
    text[size] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

void
dl_host_own(dl_host *host)
{
    const char *hint = getenv(DL_HOST_HINT_VARIABLE);
    char boot[48] = "";
    struct stat namespace = {0};

    /* A thread may be in another network namespace than the process's first one. */
    (void)stat("/proc/thread-self/ns/net", &namespace);
    read_boot(boot, sizeof boot);
    snprintf(host->stack, sizeof host->stack, "%s/%llu", boot,
             (unsigned long long)namespace.st_ino);
    snprintf(host->hint, sizeof host->hint, "%s", hint == NULL ? "" : hint);
}
