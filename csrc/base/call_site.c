/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/call_site.h"

#include <stdio.h>
#include <string.h>

/* The most characters of a path that are shown, from its end: the last folder and the
 * file name are enough to find it. */
#define FILE_LIMIT 96

atomic_bool dl_call_sites_wanted;
static _Thread_local dl_call_site noted;

void
dl_call_sites_enable(void)
{
    atomic_store_explicit(&dl_call_sites_wanted, true, memory_order_relaxed);
}

void
dl_call_site_record(const dl_call_site *site)
{
    noted = site == NULL ? (dl_call_site){0} : *site;
}

const dl_call_site *
dl_call_site_noted(void)
{
    return noted.file == NULL ? NULL : &noted;
}

void
dl_call_site_describe(char *text, size_t size)
{
    if (noted.file == NULL) {
        text[0] = '\0';
        return;
    }
    size_t length = strlen(noted.file);
    bool is_long = length > FILE_LIMIT;
    const char *file = is_long ? noted.file + length - FILE_LIMIT : noted.file;

    snprintf(text, size, "%s%s:%d in %s", is_long ? "..." : "", file, noted.line,
             noted.function);
}
