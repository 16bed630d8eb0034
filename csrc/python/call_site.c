/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/call_site.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

/* The package's folder with a trailing slash; empty if it is not known.  Fixed after
 * init. */
static char package_folder[PATH_MAX];

/* Replaces the function's name in the call sites of this thread, unless empty. */
static _Thread_local char label[64];

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
    return former;
}

static PyMethodDef functions[] = {
    {"_set_call_label", set_call_label, METH_O,
     "_set_call_label($module, label, /)\n--\n\n"
     "What operations of this thread are called in, None for the function's name; "
     "returns the former."},
    {0},
};

int
dlpy_call_site_init(PyObject *module)
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
    return PyModule_AddFunctions(module, functions);
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

/* Notes the frame and returns true if it belongs to the user's program. */
static bool
note_frame(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    dl_call_site site = {.file = text_of(code->co_filename)};
    bool is_ours = package_folder[0] != '\0'
                   && strncmp(site.file, package_folder, strlen(package_folder)) == 0;

    if (!is_ours) {
        site.function = label[0] == '\0' ? text_of(code->co_name) : label;
        site.line = PyFrame_GetLineNumber(frame);
        dl_call_site_record(&site);
    }
    Py_DECREF(code);
    return !is_ours;
}

void
dlpy_call_site_note(void)
{
    PyFrameObject *frame = PyEval_GetFrame();

    dl_call_site_record(NULL);
    Py_XINCREF(frame);
    while (frame != NULL && !note_frame(frame)) {
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    Py_XDECREF(frame);
}
