/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/label.h"

#include <stdio.h>
#include <unistd.h>

char *
dl_label_new(const char *group_name, int rank, int size)
{
    char host[65] = "?";
    char *label = NULL;

    gethostname(host, sizeof host - 1);
    int length =
        asprintf(&label, "group %s, rank %d of %d on %s", group_name, rank, size, host);
    return length < 0 ? NULL : label;
}
