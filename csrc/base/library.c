/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* RTLD_NOW resolves every symbol: a missing one fails here, not in the middle of a
 * call. */
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL)

static struct {
    pthread_mutex_t lock;
    char **paths; /* `paths` and `count` are guarded by lock */
    size_t count;
} roots = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The state of one search, with the loader's reason if an existing file did not
 * open. */
typedef struct search {
    const dl_library *library;
    void *handle;
    char complaint[512];
} search;

/* In a list that was copied in part, the rest of the entries is NULL. */
static void
free_paths(char **paths, size_t count)
{
    for (size_t i = 0; paths != NULL && i < count; i++) {
        free(paths[i]);
    }
    free(paths);
}

dl_status
dl_library_set_roots(const char *const *paths, size_t count)
{
    char **copy = calloc(count + 1, sizeof *copy);
    bool is_whole = copy != NULL;

    for (size_t i = 0; is_whole && i < count; i++) {
        copy[i] = strdup(paths[i]);
        is_whole = copy[i] != NULL;
    }
    if (!is_whole) {
        free_paths(copy, count);
        return dl_fail_no_memory();
    }
    pthread_mutex_lock(&roots.lock);
    char **old = roots.paths;
    size_t old_count = roots.count;
    roots.paths = copy;
    roots.count = count;
    pthread_mutex_unlock(&roots.lock);
    free_paths(old, old_count);
    return DL_OK;
}

/* Only the first failure is kept: the places searched later are less likely ones. */
static bool
open_path(search *self, const char *path)
{
    self->handle = dlopen(path, OPEN_FLAGS);
    if (self->handle == NULL && self->complaint[0] == '\0') {
        const char *reason = dlerror();
        snprintf(self->complaint, sizeof self->complaint, "%.500s",
                 reason == NULL ? path : reason);
    }
    return self->handle != NULL;
}

/* Tries every soname in one folder. */
static bool
open_in(search *self, const char *root, const char *folder)
{
    char path[PATH_MAX];

    for (const char *const *name = self->library->sonames; *name != NULL; name++) {
        int size = snprintf(path, sizeof path, "%s/%s/%s", root, folder, *name);
        bool is_there =
            size > 0 && (size_t)size < sizeof path && access(path, F_OK) == 0;
        if (is_there && open_path(self, path)) {
            return true;
        }
    }
    return false;
}

/* A loaded library is used again: two copies in one process would not share their
 * state. */
static bool
open_loaded(search *self)
{
    for (const char *const *name = self->library->sonames; *name != NULL; name++) {
        self->handle = dlopen(*name, OPEN_FLAGS | RTLD_NOLOAD);
        if (self->handle != NULL) {
            return true;
        }
    }
    return false;
}

/* The folders of one root are tried before the next root: the first root that has the
 * library wins, as with Python's modules. */
static bool
open_in_root(search *self, const char *root)
{
    const char *const *folder = self->library->folders;

    for (; folder != NULL && *folder != NULL; folder++) {
        if (open_in(self, root, *folder)) {
            return true;
        }
    }
    return false;
}

/* Holds the lock so that the list is not replaced meanwhile.  A slow dlopen(3) then
 * delays only other searches and dl_library_set_roots(), which are rare. */
static bool
open_in_roots(search *self)
{
    bool is_open = false;

    pthread_mutex_lock(&roots.lock);
    for (size_t i = 0; !is_open && i < roots.count; i++) {
        is_open = open_in_root(self, roots.paths[i]);
    }
    pthread_mutex_unlock(&roots.lock);
    return is_open;
}

/* The folder is called lib64 or lib, depending on the distribution and the vendor. */
static bool
open_in_homes(search *self)
{
    const char *const *home = self->library->homes;

    for (; home != NULL && *home != NULL; home++) {
        const char *root = getenv(*home);
        if (root != NULL
            && (open_in(self, root, "lib64") || open_in(self, root, "lib"))) {
            return true;
        }
    }
    return false;
}

/* Tries the versioned names: libx.so in a development package may be a linker
 * script. */
static bool
open_in_system(search *self)
{
    for (const char *const *name = self->library->sonames; *name != NULL; name++) {
        if (open_path(self, *name)) {
            return true;
        }
    }
    return false;
}

/* Appends "a, b" to `text`, as far as there is room. */
static void
list_names(char *text, size_t size, const char *const *names)
{
    size_t used = strlen(text);

    for (; names != NULL && *names != NULL; names++) {
        dl_text_append(text, size, &used, "%s%s", used == 0 ? "" : ", ", *names);
    }
}

/* The text says both where the library was looked for and how to install it. */
static dl_status
fail_not_found(const search *self)
{
    const dl_library *library = self->library;
    char names[256] = "";
    char places[256] = "";

    list_names(names, sizeof names, library->sonames);
    list_names(places, sizeof places, library->folders);
    list_names(places, sizeof places, library->homes);
    return dl_fail(
        DL_NOT_FOUND,
        "%s was not found: searched for %s among the loaded libraries, in %s (folders "
        "under the entries of sys.path, then environment variables) and in the "
        "system's search path (%s); %s, or set %s to the file's path",
        library->title, names, places[0] == '\0' ? "no folder" : places,
        self->complaint, library->advice, library->variable);
}

dl_status
dl_library_open(const dl_library *library, void **handle)
{
    search self = {.library = library};
    const char *chosen = getenv(library->variable);

    if (chosen != NULL && chosen[0] != '\0') {
        if (!open_path(&self, chosen)) {
            return dl_fail(DL_NOT_FOUND,
                           "%s cannot be loaded: %s=%s, the only place searched while "
                           "it is set, failed: %s",
                           library->title, library->variable, chosen, self.complaint);
        }
    } else if (!open_loaded(&self) && !open_in_roots(&self) && !open_in_homes(&self)
               && !open_in_system(&self)) {
        return fail_not_found(&self);
    }
    *handle = self.handle;
    return DL_OK;
}

dl_status
dl_library_bind(const dl_library *library, void *handle, dl_symbol_list list,
                void *table)
{
    for (size_t i = 0; i < list.count; i++) {
        const dl_symbol *symbol = &list.symbols[i];
        void *address = dlsym(handle, symbol->name);
        if (address == NULL && !symbol->is_optional) {
            return dl_fail(DL_UNSUPPORTED,
                           "%s in %s lacks the symbol %s: it is too old, or a "
                           "different library; %s",
                           library->title, dl_library_path(handle), symbol->name,
                           library->advice);
        }
        /* memcpy: C has no conversion from data to function pointers. */
        memcpy((char *)table + symbol->offset, &address, sizeof address);
    }
    return DL_OK;
}

static dl_status
load_locked(dl_library_use *use)
{
    void *handle;

    DL_TRY(dl_library_open(use->library, &handle));
    DL_TRY(dl_library_bind(use->library, handle, use->symbols, use->table));
    return use->check == NULL ? DL_OK : use->check(handle);
}

dl_status
dl_library_load(dl_library_use *use)
{
    pthread_mutex_lock(&use->lock);
    dl_status status = use->is_loaded ? DL_OK : load_locked(use);
    use->is_loaded = status == DL_OK;
    pthread_mutex_unlock(&use->lock);
    return status;
}

const char *
dl_library_path(void *handle)
{
    struct link_map *map = NULL;

    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL ? map->l_name
                                                                     : "(unknown file)";
}
