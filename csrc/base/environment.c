/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/environment.h"

#include <stdlib.h>
#include <strings.h>

#include "base/deadline.h"

/* Returns whether the text is one of the words, and which kind into `*value`. */
static bool
parse_flag(const char *text, bool *value)
{
    static const char *const words[2][5] = {
        {"0", "false", "f", "no", "n"},
        {"1", "true", "t", "yes", "y"},
    };

    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < 5; i++) {
            if (strcasecmp(text, words[which][i]) == 0) {
                *value = which == 1;
                return true;
            }
        }
    }
    return false;
}

dl_status
dl_environment_flag(const char *name, bool fallback, bool *value)
{
    const char *text = getenv(name);

    *value = fallback;
    if (text == NULL || *text == '\0' || parse_flag(text, value)) {
        return DL_OK;
    }
    return dl_fail(DL_INVALID,
                   "the environment variable %s must be 1 or 0, true or false, yes or "
                   "no, not '%.100s'",
                   name, text);
}

bool
dl_environment_is_on(const char *name)
{
    const char *text = getenv(name);
    bool is_on = false;

    return text != NULL && parse_flag(text, &is_on) && is_on;
}

dl_status
dl_environment_seconds(const char *name, double least, double fallback, int64_t *value)
{
    const char *text = getenv(name);
    char *end = NULL;
    double seconds = text == NULL || *text == '\0' ? fallback : strtod(text, &end);

    if ((end != NULL && (end == text || *end != '\0')) || !(seconds >= least)
        || seconds > 1e6) {
        return dl_fail(DL_INVALID,
                       "%s=%.100s: the value must be a number of seconds, at least %g",
                       name, text, least);
    }
    *value = (int64_t)(seconds * (double)DL_SECOND);
    return DL_OK;
}
