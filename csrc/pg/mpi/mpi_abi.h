/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of dl_mpi_table for one type of handles.  A file for it includes this once
 * (there is no include guard), after it has defined
 *   native_handle          the type of a handle
 *   DL_MPI_STATUS_SOURCE   the index of the int in a status that names the sender; the
 *                          tag is the next one
 *   DL_MPI_STATUS_IGNORE
 * Handles are converted by value on the way in and out, at no cost.  MPI_Test may
 * change a request, which is therefore written back. */

#define TO(handle) ((native_handle)(intptr_t)(handle))
#define FROM(native) ((dl_mpi_handle)(intptr_t)(native))

/* What an int cannot count is counted in blocks of this size. */
#define UNIT ((size_t)1 << 20)

typedef int copy_attribute_fn(native_handle, int, void *, void *, void *, int *);
typedef int delete_attribute_fn(native_handle, int, void *, void *);

#define DL_MPI_SYMBOLS(X, H)                                                       \
    X(init_thread, MPI_Init_thread, (int *, char ***, int, int *))                 \
    X(query_thread, MPI_Query_thread, (int *))                                     \
    X(initialized, MPI_Initialized, (int *))                                       \
    X(finalized, MPI_Finalized, (int *))                                           \
    X(finalize, MPI_Finalize, (void))                                              \
    X(error_string, MPI_Error_string, (int, char *, int *))                        \
    X(comm_rank, MPI_Comm_rank, (H, int *))                                        \
    X(comm_size, MPI_Comm_size, (H, int *))                                        \
    X(comm_get_attr, MPI_Comm_get_attr, (H, int, void *, int *))                   \
    X(comm_create_keyval, MPI_Comm_create_keyval,                                  \
      (copy_attribute_fn *, delete_attribute_fn *, int *, void *))                 \
    X(comm_set_attr, MPI_Comm_set_attr, (H, int, void *))                          \
    X(comm_free, MPI_Comm_free, (H *))                                             \
    X(comm_set_errhandler, MPI_Comm_set_errhandler, (H, H))                        \
    X(comm_group, MPI_Comm_group, (H, H *))                                        \
    X(group_incl, MPI_Group_incl, (H, int, const int *, H *))                      \
    X(group_free, MPI_Group_free, (H *))                                           \
    X(comm_create_group, MPI_Comm_create_group, (H, H, int, H *))                  \
    X(isend, MPI_Isend, (const void *, int, H, int, int, H, H *))                  \
    X(irecv, MPI_Irecv, (void *, int, H, int, int, H, H *))                        \
    X(iprobe, MPI_Iprobe, (int, int, H, int *, void *))                            \
    X(improbe, MPI_Improbe, (int, int, H, int *, H *, void *))                     \
    X(imrecv, MPI_Imrecv, (void *, int, H, H *, H *))                              \
    X(test, MPI_Test, (H *, int *, void *))                                        \
    X(get_count, MPI_Get_count, (const void *, H, int *))                          \
    X(ibcast, MPI_Ibcast, (void *, int, H, int, H, H *))                           \
    X(iallreduce, MPI_Iallreduce, (const void *, void *, int, H, H, H, H *))       \
    X(ireduce, MPI_Ireduce, (const void *, void *, int, H, H, int, H, H *))        \
    X(iscan, MPI_Iscan, (const void *, void *, int, H, H, H, H *))                 \
    X(iexscan, MPI_Iexscan, (const void *, void *, int, H, H, H, H *))             \
    X(iallgather, MPI_Iallgather, (const void *, int, H, void *, int, H, H, H *))  \
    X(igather, MPI_Igather, (const void *, int, H, void *, int, H, int, H, H *))   \
    X(iscatter, MPI_Iscatter, (const void *, int, H, void *, int, H, int, H, H *)) \
    X(type_contiguous, MPI_Type_contiguous, (int, H, H *))                         \
    X(type_struct, MPI_Type_create_struct,                                         \
      (int, const int *, const int64_t *, const H *, H *))                         \
    X(type_commit, MPI_Type_commit, (H *))                                         \
    X(type_free, MPI_Type_free, (H *))

typedef struct native_table {
#define X(field, symbol, arguments) int(*field) arguments;
    DL_MPI_SYMBOLS(X, native_handle)
#undef X
} native_table;

static const dl_symbol native_symbols[] = {
#define X(field, symbol, arguments) {#symbol, offsetof(native_table, field), false},
    DL_MPI_SYMBOLS(X, native_handle)
#undef X
};

static native_table native;
static const dl_mpi_table *constants; /* the table that was filled in */

static int
place(int *rank, int *size)
{
    int result = native.comm_rank(TO(constants->world), rank);

    return result == 0 ? native.comm_size(TO(constants->world), size) : result;
}

/* MPI guarantees 32767 at least. */
static int
last_tag(int *tag)
{
    const int *value = NULL;
    int is_set = 0;
    int result =
        native.comm_get_attr(TO(constants->world), constants->tag_ub, &value, &is_set);

    *tag = result == 0 && is_set ? *value : 32767;
    return result;
}

static int
copy_no_attribute(native_handle comm, int key, void *extra, void *value, void *copy,
                  int *is_copied)
{
    (void)comm, (void)key, (void)extra, (void)value, (void)copy;
    *is_copied = 0;
    return 0;
}

static void (*before_end)(void);

static int
tell_end(native_handle comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    before_end();
    return 0;
}

/* MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF, which
 * calls tell_end(). */
static int
at_finalize(void (*call)(void))
{
    int key;
    int result = native.comm_create_keyval(copy_no_attribute, tell_end, &key, NULL);

    before_end = call;
    return result == 0 ? native.comm_set_attr(TO(constants->self), key, NULL) : result;
}

static int
comm_free(dl_mpi_handle comm)
{
    native_handle freed = TO(comm);

    return native.comm_free(&freed);
}

static int
comm_set_errhandler(dl_mpi_handle comm, dl_mpi_handle errhandler)
{
    return native.comm_set_errhandler(TO(comm), TO(errhandler));
}

/* Creates it from the world instead of a parent, so that only the members take part and
 * no communicator has to outlive its group. */
static int
comm_create(const int *ranks, int count, int tag, dl_mpi_handle *comm)
{
    native_handle world = TO(constants->world), all, some, made;
    int result = native.comm_group(world, &all);

    if (result != 0) {
        return result;
    }
    result = native.group_incl(all, count, ranks, &some);
    if (result == 0) {
        result = native.comm_create_group(world, some, tag, &made);
        native.group_free(&some);
    }
    native.group_free(&all);
    if (result == 0) {
        *comm = FROM(made);
    }
    return result;
}

/* A function that starts an operation, whose request it stores. */
#define STARTS(name, parameters, arguments)      \
    static int name parameters                   \
    {                                            \
        native_handle made;                      \
        int result = native.name arguments;      \
                                                 \
        *request = result == 0 ? FROM(made) : 0; \
        return result;                           \
    }
#define PART part->data, part->count, TO(part->type)
#define INPUT input, part->count, TO(part->type)

STARTS(isend,
       (const dl_mpi_part *part, int peer, int tag, dl_mpi_handle comm,
        dl_mpi_handle *request),
       (PART, peer, tag, TO(comm), &made))
STARTS(irecv,
       (const dl_mpi_part *part, int peer, int tag, dl_mpi_handle comm,
        dl_mpi_handle *request),
       (PART, peer, tag, TO(comm), &made))
STARTS(ibcast,
       (const dl_mpi_part *part, int root, dl_mpi_handle comm, dl_mpi_handle *request),
       (PART, root, TO(comm), &made))
STARTS(iallreduce,
       (const void *input, const dl_mpi_part *part, dl_mpi_handle op,
        dl_mpi_handle comm, dl_mpi_handle *request),
       (input, PART, TO(op), TO(comm), &made))
STARTS(iscan,
       (const void *input, const dl_mpi_part *part, dl_mpi_handle op,
        dl_mpi_handle comm, dl_mpi_handle *request),
       (input, PART, TO(op), TO(comm), &made))
STARTS(iexscan,
       (const void *input, const dl_mpi_part *part, dl_mpi_handle op,
        dl_mpi_handle comm, dl_mpi_handle *request),
       (input, PART, TO(op), TO(comm), &made))
STARTS(ireduce,
       (const void *input, const dl_mpi_part *part, dl_mpi_handle op, int root,
        dl_mpi_handle comm, dl_mpi_handle *request),
       (input, PART, TO(op), root, TO(comm), &made))
STARTS(iallgather,
       (const void *input, const dl_mpi_part *part, dl_mpi_handle comm,
        dl_mpi_handle *request),
       (INPUT, PART, TO(comm), &made))
STARTS(igather,
       (const void *input, const dl_mpi_part *part, int root, dl_mpi_handle comm,
        dl_mpi_handle *request),
       (INPUT, PART, root, TO(comm), &made))
STARTS(iscatter,
       (const void *input, const dl_mpi_part *part, int root, dl_mpi_handle comm,
        dl_mpi_handle *request),
       (INPUT, PART, root, TO(comm), &made))

/* Decodes a status.  A field that cannot be read keeps a harmless value. */
static void
read_status(const int *words, dl_mpi_status *status)
{
    status->source = words[DL_MPI_STATUS_SOURCE];
    status->tag = words[DL_MPI_STATUS_SOURCE + 1];
    status->bytes = -1;
    native.get_count(words, TO(constants->byte), &status->bytes);
}

/* All waits for requests are made of this call. */
static int
test(dl_mpi_handle *request, int *is_done, dl_mpi_status *status)
{
    native_handle tested = TO(*request);
    int words[16] = {0}; /* twice the size of any status */
    int result = native.test(&tested, is_done,
                             status == NULL ? DL_MPI_STATUS_IGNORE : (void *)words);

    *request = FROM(tested);
    if (result == 0 && *is_done && status != NULL) {
        read_status(words, status);
    }
    return result;
}

static int
progress(void)
{
    int words[16] = {0}, is_there;

    return native.iprobe(constants->any_source, 0, TO(constants->world), &is_there,
                         (void *)words);
}

static int
improbe(int peer, int tag, dl_mpi_handle comm, int *is_there, dl_mpi_handle *message,
        dl_mpi_status *status)
{
    native_handle found;
    int words[16] = {0};
    int result = native.improbe(peer, tag, TO(comm), is_there, &found, (void *)words);

    if (result == 0 && *is_there) {
        *message = FROM(found);
        read_status(words, status);
    }
    return result;
}

static int
imrecv(const dl_mpi_part *part, dl_mpi_handle message, dl_mpi_handle *request)
{
    native_handle found = TO(message), made;
    int result = native.imrecv(part->data, part->count, TO(part->type), &found, &made);

    *request = result == 0 ? FROM(made) : 0;
    return result;
}

/* Makes the type of whole units and a rest in bytes, and commits it, since callers use
 * it at once. */
static int
type_bytes(size_t size, dl_mpi_handle *type)
{
    int counts[2] = {(int)(size / UNIT), (int)(size % UNIT)};
    int64_t offsets[2] = {0, (int64_t)(size - size % UNIT)};
    native_handle made, parts[2] = {0, TO(constants->byte)};
    int result = native.type_contiguous((int)UNIT, parts[1], &parts[0]);

    if (result != 0) {
        return result;
    }
    result = native.type_struct(2, counts, offsets, parts, &made);
    native.type_free(&parts[0]);
    if (result == 0) {
        result = native.type_commit(&made);
        *type = FROM(made);
    }
    return result;
}

static int
type_free(dl_mpi_handle type)
{
    native_handle freed = TO(type);

    return native.type_free(&freed);
}

/* Fills in everything but the constants. */
static dl_status
bind_calls(void *handle, dl_mpi_table *table)
{
    dl_symbol_list list = {native_symbols,
                           sizeof native_symbols / sizeof *native_symbols};

    DL_TRY(dl_library_bind(&dl_mpi_library, handle, list, &native));
    constants = table;
    *table = (dl_mpi_table){
        .init_thread = native.init_thread,
        .query_thread = native.query_thread,
        .initialized = native.initialized,
        .finalized = native.finalized,
        .finalize = native.finalize,
        .error_string = native.error_string,
        .place = place,
        .last_tag = last_tag,
        .at_finalize = at_finalize,
        .comm_free = comm_free,
        .comm_set_errhandler = comm_set_errhandler,
        .comm_create = comm_create,
        .isend = isend,
        .irecv = irecv,
        .ibcast = ibcast,
        .iallreduce = iallreduce,
        .ireduce = ireduce,
        .iscan = iscan,
        .iexscan = iexscan,
        .iallgather = iallgather,
        .igather = igather,
        .iscatter = iscatter,
        .progress = progress,
        .improbe = improbe,
        .imrecv = imrecv,
        .test = test,
        .type_bytes = type_bytes,
        .type_free = type_free,
    };
    return DL_OK;
}
