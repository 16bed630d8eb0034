/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server_variable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dl_status
dl_server_variable_read(const char *variable, const char *host, uint16_t port,
                        dl_bytes *what, bool *is_meant)
{
    const char *text = getenv(variable);
    char server[16];

    *what = (dl_bytes){0};
    *is_meant = false;
    if (text == NULL || *text == '\0') {
        return DL_OK;
    }
    const char *at = strchr(text, '@');
    const char *colon = strrchr(text, ':');
    if (at == NULL || at == text || colon == NULL || colon < at) {
        return dl_fail(DL_INVALID, "%s has not the form WHAT@HOST:PORT", variable);
    }
    *what = (dl_bytes){(const uint8_t *)text, (size_t)(at - text)};
    snprintf(server, sizeof server, ":%u", port);
    size_t host_size = (size_t)(colon - at) - 1;
    *is_meant = strcmp(colon, server) == 0 && strlen(host) == host_size
                && memcmp(host, at + 1, host_size) == 0;
    return DL_OK;
}

dl_status
dl_standby_find(const char *host, uint16_t port, char **standby, uint16_t *standby_port)
{
    bool is_meant;
    dl_bytes what;

    *standby = NULL;
    DL_TRY(dl_server_variable_read(DL_STANDBY_VARIABLE, host, port, &what, &is_meant));
    if (!is_meant) {
        return DL_OK;
    }
    char *found = strdup((const char *)what.data);
    if (found == NULL) {
        return dl_fail_no_memory();
    }
    found[what.size] = '\0';
    char *colon = strrchr(found, ':');
    char *end = NULL;
    unsigned long number = colon == NULL ? 0 : strtoul(colon + 1, &end, 10);
    if (number == 0 || number > UINT16_MAX || *end != '\0' || colon == found) {
        free(found);
        return dl_fail(DL_INVALID, "%s must be HOST:PORT@HOST:PORT",
                       DL_STANDBY_VARIABLE);
    }
    *colon = '\0';
    *standby = found;
    *standby_port = (uint16_t)number;
    return DL_OK;
}
