/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/record/call_site.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

#include "base/hash.h"
#include "base/thread.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"

/* The package's folder with a trailing slash; empty if it is not known.  Fixed after
 * init. */
static char package_folder[PATH_MAX];

/* Replaces the function's name in the call sites of this thread, unless empty. */
static _Thread_local char label[64];
static _Thread_local uint64_t label_hash; /* 0 without a label */

static PyObject *
set_call_label(PyObject *Py_UNUSED(module), PyObject *wanted)
{
    const char *text = wanted == Py_None ? "" : PyUnicode_AsUTF8(wanted);
    PyObject *former = label[0] == '\0'
                           ? Py_NewRef(Py_None)
                           : PyUnicode_DecodeUTF8(label, strlen(label), "replace");

    if (text == NULL || former == NULL) {
        Py_XDECREF(former);
        return NULL;
    }
    snprintf(label, sizeof label, "%s", text);
    label_hash = label[0] == '\0' ? 0 : dl_hash(dl_bytes_of(label)) | 1;
    return former;
}

/* The text lives as long as the frame, which holds the code object, which holds the
 * text. */
static const char *
text_of(PyObject *object)
{
    const char *text = PyUnicode_AsUTF8(object);

    if (text == NULL) {
        PyErr_Clear();
        return "?";
    }
    return text;
}

static bool
is_of_package(const char *file)
{
    return package_folder[0] != '\0'
           && strncmp(file, package_folder, strlen(package_folder)) == 0;
}

/* A power of two.  Programs have far fewer call sites. */
#define CACHE_SIZE 256

/* The instruction that the innermost Python frame is executing, and under what label. */
typedef struct place {
    PyCodeObject *code; /* borrowed: the frame holds it during the call */
    uint64_t label;     /* its hash */
    int instruction;
} place;

typedef struct cached_site {
    PyCodeObject *code; /* owned, so that no other code object gets its address */
    uint64_t label;     /* its hash: the same line may have another one next time */
    int instruction;
    uint32_t site;
    unsigned fork_generation; /* of the recording that the number is of */
    bool is_ours; /* code of this package, which calls on behalf of different lines */
    dlpy_version version;
} cached_site;

struct dlpy_site_cache {
    cached_site sites[CACHE_SIZE];
};

static int
instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX < 0x030b0000
    return frame->f_lasti;
#else
    return PyFrame_GetLasti(frame);
#endif
}

/* The interpreter creates a frame object the first time a frame is requested and keeps
 * it until that frame returns, so a loop pays only once. */
static bool
find_place(place *place)
{
    PyFrameObject *frame = PyEval_GetFrame();

    if (frame == NULL) {
        return false;
    }
    place->code = PyFrame_GetCode(frame);
    place->instruction = instruction_of(frame);
    place->label = label_hash;
    Py_DECREF(place->code);
    return true;
}

static cached_site *
slot_of(dlpy_state *state, const place *place)
{
    uint64_t mixed = (uintptr_t)place->code >> 6 ^ (uint64_t)place->instruction >> 1
                     ^ place->label >> 1;

    return &state->site_cache->sites[mixed % CACHE_SIZE];
}

/* Returns the innermost frame outside of the package, as a new reference; NULL if there
 * is none. */
static PyFrameObject *
find_user_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();

    Py_XINCREF(frame);
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        bool is_ours = is_of_package(text_of(code->co_filename));
        Py_DECREF(code);
        if (!is_ours) {
            break;
        }
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    return frame;
}

/* Adds the line at which the frame is, with the thread's label or the name of its
 * function, which also stands for a label beyond those that the line has room for. */
static uint32_t
add_site(PyFrameObject *frame, PyCodeObject *code)
{
    const char *file = text_of(code->co_filename);
    int line = PyFrame_GetLineNumber(frame);
    uint32_t plain = dl_recorder_add_site(file, text_of(code->co_name), line);

    if (label[0] == '\0') {
        return plain;
    }
    uint32_t labelled = dl_recorder_add_label(file, label, line);
    return labelled == 0 ? plain : labelled;
}

/* Returns the number of the line that called the package, found by walking the
 * frames. */
static uint32_t
look_up(const place *place, bool *is_ours)
{
    PyFrameObject *frame = find_user_frame();
    uint32_t number = 0;

    *is_ours = true;
    if (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const char *file = text_of(code->co_filename);
        *is_ours = strcmp(text_of(place->code->co_filename), file) != 0;
        number = add_site(frame, code);
        Py_DECREF(code);
        Py_DECREF(frame);
    }
    return number;
}

/* Fills the slot, unless another thread is filling it. */
static void
fill_slot(cached_site *slot, const place *place, uint32_t site, bool is_ours)
{
    if (!dlpy_version_begin(&slot->version)) {
        return;
    }
    PyCodeObject *before = slot->code;
    Py_INCREF(place->code);
    DLPY_STORE(slot->code, place->code);
    DLPY_STORE(slot->label, place->label);
    DLPY_STORE(slot->instruction, place->instruction);
    DLPY_STORE(slot->site, site);
    DLPY_STORE(slot->fork_generation, dl_fork_generation());
    DLPY_STORE(slot->is_ours, is_ours);
    dlpy_version_end(&slot->version);
    Py_XDECREF(before);
}

/* Reads the slot; returns whether it is that of the place. */
static bool
read_slot(const cached_site *slot, const place *place, uint32_t *site, bool *is_ours)
{
    unsigned version = dlpy_version_read(&slot->version);
    bool is_cached = DLPY_LOAD(slot->code) == place->code
                     && DLPY_LOAD(slot->label) == place->label
                     && DLPY_LOAD(slot->instruction) == place->instruction
                     && DLPY_LOAD(slot->fork_generation) == dl_fork_generation();

    *site = DLPY_LOAD(slot->site);
    *is_ours = DLPY_LOAD(slot->is_ours);
    return is_cached && dlpy_version_is(&slot->version, version);
}

/* For code of the package: the cached site of the user's line that called it. */
static __attribute__((noinline)) uint32_t
look_behind(dlpy_state *state, const place *inner)
{
    PyFrameObject *frame = find_user_frame();
    uint32_t site;
    bool is_ours;

    if (frame == NULL) {
        return look_up(inner, &is_ours);
    }
    place place = {PyFrame_GetCode(frame), label_hash, instruction_of(frame)};
    cached_site *slot = slot_of(state, &place);
    if (!read_slot(slot, &place, &site, &is_ours)) {
        site = look_up(&place, &is_ours);
        fill_slot(slot, &place, site, is_ours);
    }
    Py_DECREF(place.code);
    Py_DECREF(frame);
    return site;
}

/* Not inlined, to keep it out of the path of a place that is cached. */
static __attribute__((noinline)) uint32_t
look_up_anew(cached_site *slot, const place *place)
{
    bool is_ours;
    uint32_t site = look_up(place, &is_ours);

    fill_slot(slot, place, site, is_ours);
    return site;
}

void
dlpy_recorded_site_find(dlpy_state *state)
{
    place place;
    uint32_t site;
    bool is_ours;

    dl_recorder_site = 0;
    /* The cache is gone once the module is being freed. */
    if (state->site_cache == NULL || !find_place(&place)) {
        return;
    }
    cached_site *slot = slot_of(state, &place);
    if (!read_slot(slot, &place, &site, &is_ours)) {
        site = look_up_anew(slot, &place);
    } else if (is_ours) {
        site = look_behind(state, &place);
    }
    dl_recorder_site = site;
}

int
dlpy_recorded_sites_traverse(dlpy_state *state, visitproc visit, void *arg)
{
    for (int i = 0; state->site_cache != NULL && i < CACHE_SIZE; i++) {
        Py_VISIT(state->site_cache->sites[i].code);
    }
    return 0;
}

void
dlpy_recorded_sites_clear(dlpy_state *state)
{
    struct dlpy_site_cache *cache = state->site_cache;

    state->site_cache = NULL;
    for (int i = 0; cache != NULL && i < CACHE_SIZE; i++) {
        Py_XDECREF(cache->sites[i].code);
    }
    PyMem_Free(cache);
}

static PyMethodDef functions[] = {
    {"_set_call_label", set_call_label, METH_O, DLPY_DOC__SET_CALL_LABEL},
    {0},
};

/* Stores the package's folder, too. */
static int
begin_sites(dlpy_state *state, PyObject *module)
{
    PyObject *file = PyObject_GetAttrString(module, "__file__");
    const char *text = file == NULL ? NULL : PyUnicode_AsUTF8(file);
    const char *slash = text == NULL ? NULL : strrchr(text, '/');

    if (slash != NULL && (size_t)(slash - text) + 2 <= sizeof package_folder) {
        snprintf(package_folder, (size_t)(slash - text) + 2, "%s", text);
    }
    Py_XDECREF(file);
    /* A module that was not loaded from a file is not an error; no frame is skipped
     * then. */
    PyErr_Clear();
    state->site_cache = PyMem_Calloc(1, sizeof *state->site_cache);
    if (state->site_cache == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

const dlpy_part dlpy_call_sites = {.begin = begin_sites, .functions = functions};
