/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a double is told by the variables DOUBLE_... of the environment it is loaded in.
 * They are read once: threads call getenv(3) here while a test may change os.environ,
 * which can move the array under them.  double_change() is how a test changes one of a
 * double that is loaded. */
#ifndef DISTLITE_TESTS_DOUBLES_SETTINGS_H
#define DISTLITE_TESTS_DOUBLES_SETTINGS_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The newest of a name counts; all stay, since a reader may hold any. */
typedef struct changed_setting {
    char *text; /* NAME=value */
    struct changed_setting *older;
} changed_setting;

static _Atomic(changed_setting *) newest_setting;

static void
change_setting(const char *text)
{
    changed_setting *made = malloc(sizeof *made);

    made->text = strdup(text);
    made->older = atomic_load(&newest_setting);
    while (!atomic_compare_exchange_weak(&newest_setting, &made->older, made)) {
    }
}

/* `text`: NAME=value; without a value the variable counts as not set. */
void
double_change(const char *text)
{
    change_setting(text);
}

__attribute__((constructor)) static void
read_settings(void)
{
    extern char **environ;

    for (char **each = environ; *each != NULL; each++) {
        if (strncmp(*each, "DOUBLE_", 7) == 0) {
            change_setting(*each);
        }
    }
}

/* Returns the value if `text` is a setting of this name, else NULL.  ThreadSanitizer sees
 * what strncmp(3) reads, and not that the list is atomic: doubles are not instrumented. */
static const char *
value_in(const char *text, const char *name)
{
    while (*name != '\0' && *text == *name) {
        text++;
        name++;
    }
    return *name == '\0' && *text == '=' ? text + 1 : NULL;
}

/* Returns NULL where the variable is not set. */
static const char *
setting_text(const char *name)
{
    for (changed_setting *each = atomic_load(&newest_setting); each != NULL;
         each = each->older) {
        const char *value = value_in(each->text, name);
        if (value != NULL) {
            return value[0] == '\0' ? NULL : value;
        }
    }
    return NULL;
}

static inline int
setting(const char *name, int otherwise)
{
    const char *text = setting_text(name);

    return text == NULL ? otherwise : atoi(text);
}

#endif
