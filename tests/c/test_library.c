/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

#include "check.h"

#define VARIABLE "DISTLITE_TEST_LIBRARY"

typedef struct table {
    double (*cosine)(double);
    void (*newer)(void);
} table;

static const dl_symbol symbols[] = {
    {"cos", offsetof(table, cosine), false},
    {"cos_of_tomorrow", offsetof(table, newer), true},
};

static const char *const math[] = {"libm.so.6", NULL};
static const char *const odd[] = {"libodd.so.3", "libodd.so", NULL};
static const char *const folders[] = {"package/lib", NULL};
static const char *const homes[] = {"DISTLITE_TEST_HOME", NULL};

static dl_library
library_of(const char *const *sonames)
{
    return (dl_library){.title = "Odd",
                        .variable = VARIABLE,
                        .sonames = sonames,
                        .folders = folders,
                        .homes = homes,
                        .advice = "install the package odd"};
}

/* A file of the case's own, by another name than the system's. */
static void
make_library(char *root, size_t size, const char *below)
{
    Dl_info info;
    char path[PATH_MAX];

    snprintf(root, size, "/tmp/distlite-library-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    CHECK(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), &info) != 0);
    snprintf(path, sizeof path, "mkdir -p %s/%s && cp -L %s %s/%s/libodd.so.3", root,
             below, info.dli_fname, root, below);
    CHECK(system(path) == 0);
}

static void
remove_library(const char *root)
{
    char command[PATH_MAX];

    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}

CHECK_CASE(a_library_in_use_is_found_and_bound)
{
    dl_library library = library_of(math);
    table bound = {0};
    void *handle;

    CHECK_OK(dl_library_open(&library, &handle));
    CHECK_OK(dl_library_bind(&library, handle, (dl_symbol_list){symbols, 2}, &bound));
    CHECK(bound.cosine(0.0) == 1.0);
    CHECK(bound.newer == NULL);
    CHECK_CONTAINS(dl_library_path(handle), "libm");
}

CHECK_CASE(a_missing_symbol_is_named)
{
    static const dl_symbol wrong[] = {{"cos", 0, false}, {"sin_of_old", 8, false}};
    dl_library library = library_of(math);
    table bound;
    void *handle;

    CHECK_OK(dl_library_open(&library, &handle));
    CHECK_STATUS(dl_library_bind(&library, handle, (dl_symbol_list){wrong, 2}, &bound),
                 DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, "lacks the symbol sin_of_old");
    CHECK_CONTAINS(dl_last_error()->text, "libm.so.6");
}

CHECK_CASE(an_absent_library_says_where_it_was_looked_for)
{
    dl_library library = library_of(odd);
    void *handle;

    CHECK_STATUS(dl_library_open(&library, &handle), DL_NOT_FOUND);
    const char *text = dl_last_error()->text;
    CHECK_CONTAINS(text, "Odd was not found: searched for libodd.so.3, libodd.so");
    CHECK_CONTAINS(text, "package/lib, DISTLITE_TEST_HOME");
    CHECK_CONTAINS(text, "install the package odd, or set " VARIABLE);
}

CHECK_CASE(a_package_below_a_root_is_found)
{
    dl_library library = library_of(odd);
    char root[64];
    void *handle;

    make_library(root, sizeof root, "package/lib");
    const char *roots[] = {"/nowhere", root};
    CHECK_OK(dl_library_set_roots(roots, 2));
    CHECK_OK(dl_library_open(&library, &handle));
    CHECK_CONTAINS(dl_library_path(handle), root);
    CHECK_OK(dl_library_set_roots(NULL, 0));
    remove_library(root);
}

CHECK_CASE(a_home_is_looked_into)
{
    dl_library library = library_of(odd);
    char root[64];
    void *handle;

    make_library(root, sizeof root, "lib64");
    setenv("DISTLITE_TEST_HOME", root, 1);
    CHECK_OK(dl_library_open(&library, &handle));
    CHECK_CONTAINS(dl_library_path(handle), root);
    remove_library(root);
}

CHECK_CASE(the_variable_forbids_all_other_places)
{
    dl_library library = library_of(math);
    void *handle;

    setenv(VARIABLE, "/nowhere/libm.so.6", 1);
    CHECK_STATUS(dl_library_open(&library, &handle), DL_NOT_FOUND);
    CHECK_CONTAINS(dl_last_error()->text, VARIABLE "=/nowhere/libm.so.6");
    setenv(VARIABLE, "libm.so.6", 1);
    CHECK_OK(dl_library_open(&library, &handle));
}

CHECK_CASE(roots_are_copied_or_left_when_memory_runs_out)
{
    dl_library library = library_of(odd);
    const char *roots[] = {"/nowhere", "/elsewhere"};
    void *handle;

    for (long number = 1;; number++) {
        dl_check_fail_allocation_at(number);
        dl_status status = dl_library_set_roots(roots, 2);
        if (!dl_check_allocation_failed()) {
            CHECK_OK(status);
            break;
        }
        CHECK_STATUS(status, DL_NO_MEMORY);
    }
    CHECK_STATUS(dl_library_open(&library, &handle), DL_NOT_FOUND);
}

static int checks;

static dl_status
refuse_once(void *handle)
{
    CHECK(handle != NULL);
    return checks++ == 0 ? dl_fail(DL_UNSUPPORTED, "the first time") : DL_OK;
}

CHECK_CASE(a_library_is_loaded_once_and_a_failure_is_not_kept)
{
    dl_library library = library_of(math);
    static const dl_symbol symbols[] = {{"cos", 0, false}};
    double (*table)(double) = NULL;
    dl_library_use use = {
        .library = &library,
        .symbols = {symbols, 1},
        .table = (void *)&table,
        .check = refuse_once,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };

    setenv(VARIABLE, "/nowhere/libm.so.6", 1);
    CHECK_STATUS(dl_library_load(&use), DL_NOT_FOUND);
    unsetenv(VARIABLE);
    CHECK_STATUS(dl_library_load(&use), DL_UNSUPPORTED);
    CHECK_OK(dl_library_load(&use));
    CHECK_OK(dl_library_load(&use));
    CHECK_EQUAL(checks, 2);
    CHECK(table(0.0) == 1.0);
}
