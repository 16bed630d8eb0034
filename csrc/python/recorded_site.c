/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/recorded_site.h"

/* Where the running frame can be read without making an object of it: the structures are
 * the interpreter's own, and known for these versions. */
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000 \
    && !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
#define READS_FRAMES 1
#define Py_BUILD_CORE 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <internal/pycore_frame.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE
#elif PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

#include "python/call_site.h"

/* A power of two; programs have far fewer places that call. */
#define CACHE_SIZE 256

/* Where the interpreter is. */
typedef struct place {
    PyObject *code; /* borrowed */
    const void *instruction;
} place;

typedef struct cached_site {
    PyObject *code; /* a reference: no other code comes to lie at its address */
    const void *instruction;
    uint32_t site;
    bool is_ours; /* called by this package, on behalf of different lines */
} cached_site;

struct dlpy_site_cache {
    cached_site sites[CACHE_SIZE];
};

#if defined(READS_FRAMES) && PY_VERSION_HEX >= 0x030d0000
static bool
find_place(place *place)
{
    const struct _PyInterpreterFrame *frame = PyThreadState_Get()->current_frame;

    if (frame == NULL || frame->owner == FRAME_OWNED_BY_CSTACK) {
        return false;
    }
    place->code = frame->f_executable;
    place->instruction = frame->instr_ptr;
    return true;
}
#elif defined(READS_FRAMES)
static bool
find_place(place *place)
{
    const struct _PyInterpreterFrame *frame =
        PyThreadState_Get()->cframe->current_frame;

#if PY_VERSION_HEX >= 0x030c0000
    if (frame != NULL && frame->owner == FRAME_OWNED_BY_CSTACK) {
        return false;
    }
#endif
    if (frame == NULL) {
        return false;
    }
    place->code = (PyObject *)frame->f_code;
    place->instruction = frame->prev_instr;
    return true;
}
#elif PY_VERSION_HEX < 0x030b0000
/* Frames are objects anyway.  Never dereferenced: the instruction is a number. */
static bool
find_place(place *place)
{
    PyFrameObject *frame = PyEval_GetFrame();

    if (frame == NULL) {
        return false;
    }
    place->code = (PyObject *)frame->f_code;
    place->instruction = (const void *)(uintptr_t)(frame->f_lasti + 1);
    return true;
}
#else
/* A version that is not known here: each operation takes the slow way. */
static bool
find_place(place *place)
{
    (void)place;
    return false;
}
#endif

static cached_site *
slot_of(dlpy_state *state, const place *place)
{
    uintptr_t mixed = (uintptr_t)place->code >> 6 ^ (uintptr_t)place->instruction >> 1;

    return &state->site_cache->sites[mixed % CACHE_SIZE];
}

/* The line that called the package, by way of the frames. */
static uint32_t
look_up(const place *place, bool *is_ours)
{
    dlpy_call_site_note();
    const dl_call_site *site = dl_call_site_noted();
    uint32_t number = 0;

    *is_ours = true;
    if (site != NULL) {
        const PyCodeObject *code = (const PyCodeObject *)place->code;
        const char *file =
            PyCode_Check(place->code) ? PyUnicode_AsUTF8(code->co_filename) : NULL;
        *is_ours = file == NULL || strcmp(file, site->file) != 0;
        number = dl_recorder_add_site(site->file, site->function, site->line);
    }
    PyErr_Clear();
    if (!dl_call_sites_are_wanted()) {
        dl_call_site_note(NULL);
    }
    return number;
}

static void
fill(cached_site *slot, const place *place)
{
    PyObject *before = slot->code;

    slot->site = look_up(place, &slot->is_ours);
    slot->code = Py_NewRef(place->code);
    slot->instruction = place->instruction;
    Py_XDECREF(before);
}

void
dlpy_recorded_site_find(dlpy_state *state)
{
    place place;

    dl_recorder_site = 0;
    if (!find_place(&place)) {
        return;
    }
    if (state->site_cache == NULL) {
        state->site_cache = PyMem_Calloc(1, sizeof *state->site_cache);
        if (state->site_cache == NULL) {
            return;
        }
    }
    cached_site *slot = slot_of(state, &place);
    if (slot->code != place.code || slot->instruction != place.instruction) {
        fill(slot, &place);
    } else if (slot->is_ours) {
        slot->site = look_up(&place, &slot->is_ours);
    }
    dl_recorder_site = slot->site;
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
