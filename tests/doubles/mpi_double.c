/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for an MPI library: the functions that pg/mpi calls, and no others,
 * between processes of this host.  -DMPICH and -DSTANDARD build it with those binary
 * interfaces; the default is Open MPI's.
 *
 * All processes map the file DOUBLE_MPI_JOB, which has a ring of bytes from each rank
 * to each.  Rank and size are in RANK and WORLD_SIZE.  As in real libraries, bytes move
 * only while one of its functions is called, and those of a message above EAGER only once
 * a receive has taken it.  Collectives are messages with a context
 * of their own and a tag for each, move while they are tested, and reduce in the order of
 * ranks.  One in which ranks do not call the same fails as a message that is too long, or
 * never ends.  Tags go up to what MPI guarantees and no further.
 *
 * DOUBLE_MPI_FAIL=MPI_Ibcast,MPI_Iallreduce: these functions fail; MPI_Isend only with at
 * least DOUBLE_MPI_FAIL_BYTES; with DOUBLE_MPI_FAIL_LAST=1 a collective fails only once
 * the other processes have begun it, and MPI_Isend once they have begun the collectives
 * before it.  DOUBLE_MPI_STOP=MPI_Iallreduce: the process stops itself
 * (SIGSTOP) as that collective is called first.  DOUBLE_MPI_THREADS=1: it provides a
 * lower thread level than is asked for. */
#include <complex.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "settings.h"

#define RANKS 16
#define RING ((size_t)1 << 18)
#define EAGER ((size_t)1 << 16)
#define REQUESTS 1024
#define COMMS 256
#define SUCCESS 0
#define LAST_TAG 32767
#define ERR_TAG 4
#define ERR_TRUNCATE 15
#define ERR_OTHER 16

enum type { BYTE, I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, C64, C128, TYPES };
enum op { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, OPS };

static const size_t type_sizes[TYPES] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16};

#define TYPE_LIST(X)                           \
    X(BYTE, byte, 0x4c00010d, 0x247)           \
    X(I8, int8_t, 0x4c000137, 0x240)           \
    X(U8, uint8_t, 0x4c00013b, 0x241)          \
    X(I16, int16_t, 0x4c000238, 0x248)         \
    X(U16, uint16_t, 0x4c00023c, 0x249)        \
    X(I32, int32_t, 0x4c000439, 0x250)         \
    X(U32, uint32_t, 0x4c00043d, 0x251)        \
    X(I64, int64_t, 0x4c00083a, 0x258)         \
    X(U64, uint64_t, 0x4c00083e, 0x259)        \
    X(F32, float, 0x4c00040a, 0x210)           \
    X(F64, double, 0x4c00080b, 0x214)          \
    X(C64, c_float_complex, 0x4c000840, 0x212) \
    X(C128, c_double_complex, 0x4c001041, 0x216)
#define OP_LIST(X)                     \
    X(SUM, op_sum, 0x58000003, 0x21)   \
    X(PROD, op_prod, 0x58000004, 0x24) \
    X(MIN, op_min, 0x58000002, 0x22)   \
    X(MAX, op_max, 0x58000001, 0x23)   \
    X(LAND, op_land, 0x58000005, 0x30) \
    X(LOR, op_lor, 0x58000007, 0x31)   \
    X(LXOR, op_lxor, 0x58000009, 0x32) \
    X(BAND, op_band, 0x58000006, 0x28) \
    X(BOR, op_bor, 0x58000008, 0x29)   \
    X(BXOR, op_bxor, 0x5800000a, 0x2a)
#define OTHER_LIST(X)                      \
    X(0, comm_world, 0x44000000, 0x101)    \
    X(1, errors_return, 0x54000001, 0x143) \
    X(2, request_null, 0x2c000000, 0x180)  \
    X(3, comm_self, 0x44000001, 0x102)

/* This interface's handles, constants and layout of a status, and where its
 * predefined handles are. */
#if defined(MPICH)
typedef int handle;
#define IN_PLACE ((void *)(intptr_t) - 1)
#define ANY_SOURCE (-2)
#define ANY_TAG (-1)
#define LEVEL_MULTIPLE 3
#define STATUS_IGNORE ((void *)(intptr_t)1)
#define TEXT "MPICH Version:\t4.0.2\nMPICH of the tests\n"
#define VALUE(name, mpich, standard) (mpich)
enum { AT_SOURCE = 2, AT_TAG = 3, AT_BYTES = 0 };
#define TAG_UB 0x64400001
#elif defined(STANDARD)
typedef void *handle;
#define IN_PLACE ((void *)(intptr_t)1)
#define ANY_SOURCE (-1)
#define ANY_TAG (-2)
#define LEVEL_MULTIPLE 4096
#define STATUS_IGNORE NULL
#define TEXT "An MPI with the standard's binary interface, of the tests"
#define VALUE(name, mpich, standard) ((void *)(intptr_t)(standard))
enum { AT_SOURCE = 0, AT_TAG = 1, AT_BYTES = 4 };
#define TAG_UB 501
#else
typedef void *handle;
#define IN_PLACE ((void *)(intptr_t)1)
#define ANY_SOURCE (-1)
#define ANY_TAG (-1)
#define LEVEL_MULTIPLE 3
#define STATUS_IGNORE NULL
#define TEXT "Open MPI v4.1.4, of the tests"
#define VALUE(name, mpich, standard) ((void *)ompi_mpi_##name)
#define EXPORTED(kind, name, mpich, standard) char ompi_mpi_##name[8];
TYPE_LIST(EXPORTED)
OP_LIST(EXPORTED)
OTHER_LIST(EXPORTED)
enum { AT_SOURCE = 0, AT_TAG = 1, AT_BYTES = 4 };
#define TAG_UB 0
#endif

#define ROW(kind, name, mpich, standard) [kind] = VALUE(name, mpich, standard),
static const handle types[TYPES] = {TYPE_LIST(ROW)};
static const handle ops[OPS] = {OP_LIST(ROW)};
static const handle others[] = {OTHER_LIST(ROW)};
#define WORLD_HANDLE others[0]
#define REQUEST_NULL others[2]

/* Handles that are created at run time: numbers above all predefined ones. */
#define MADE 0x60000000
#define MADE_KIND 0x00100000
enum { MADE_REQUEST, MADE_COMM, MADE_GROUP };

static handle
made(int kind, int index)
{
    return (handle)(intptr_t)(MADE + kind * MADE_KIND + index);
}

static int
index_of(handle made_handle)
{
    return (int)((intptr_t)made_handle & (MADE_KIND - 1));
}

typedef struct ring {
    _Atomic size_t written, taken;
    char bytes[RING];
} ring;

typedef struct job {
    atomic_int contexts;
    _Atomic uint64_t begun[RANKS]; /* collectives, by rank */
    ring rings[];                  /* from each rank to each */
} job;

/* A message up to EAGER is one PACKET; of a larger one an OFFER is answered with ACCEPT,
 * and then the DATA follow. */
enum kind { PACKET, OFFER, ACCEPT, DATA };

typedef struct head {
    int kind, context, tag;
    size_t size;
    uint64_t turn; /* of the send */
} head;

typedef struct message {
    struct message *next;
    head head;
    int source;
    size_t got;
    char *bytes;
} message;

typedef struct request {
    bool is_used, is_send, is_done;
    bool awaits_peer;       /* an offer was sent, or accepted */
    int kind;               /* of a send, what is written next */
    int context, tag, peer; /* a rank of the world; negative: any */
    const int *ranks;       /* of the communicator */
    int size;
    char *data;
    size_t capacity; /* of a send, its size */
    size_t moved;    /* of a send, with its head */
    uint64_t turn;
    uint64_t
        data_turn; /* of the offer that a receive has accepted, or a send accepts */
    int data_from;
    int source, result;
    message *came;          /* found by MPI_Improbe, for MPI_Imrecv */
    struct collective *all; /* of a collective */
} request;

typedef struct comm {
    bool is_used;
    int context, rank, size;
    int ranks[RANKS];
    int calls; /* of collectives, which is their tag */
} comm;

typedef int copy_fn(handle, int, void *, void *, void *, int *);
typedef int delete_fn(handle, int, void *, void *);

/* All of these are guarded by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static job *shared;
static int world_rank, world_size, level;
static bool is_started, is_ending, is_over;
static comm comms[COMMS];
static comm groups[COMMS];
static request requests[REQUESTS], *requests_end = requests; /* of those ever used */
static uint64_t turns;
static message *arriving[RANKS], *arrived, **arrived_end = &arrived;
static delete_fn *delete_attribute;
static bool is_attribute_set; /* on MPI_COMM_SELF */

static int
fails(const char *call)
{
    const char *names = setting_text("DOUBLE_MPI_FAIL");
    size_t size = strlen(call);

    for (; names != NULL && (names = strstr(names, call)) != NULL; names += size) {
        if (names[size] == '\0' || names[size] == ',') {
            return ERR_OTHER;
        }
    }
    return SUCCESS;
}

static void
stop_in(const char *call)
{
    const char *name = setting_text("DOUBLE_MPI_STOP");

    if (name != NULL && strcmp(name, call) == 0) {
        change_setting("DOUBLE_MPI_STOP=");
        raise(SIGSTOP);
    }
}

/* Waits until the others have begun all collectives that this rank has, and `more`.  They
 * are begun in the same order everywhere, so their numbers tell. */
static void
wait_for_others(uint64_t more)
{
    const uint64_t count = atomic_load(&shared->begun[world_rank]) + more;

    for (int rank = 0;
         rank < world_size && setting_text("DOUBLE_MPI_FAIL_LAST") != NULL; rank++) {
        while (rank != world_rank && atomic_load(&shared->begun[rank]) < count) {
            usleep(100);
        }
    }
}

static comm *
comm_of(handle given)
{
    return given == WORLD_HANDLE ? &comms[0] : &comms[index_of(given)];
}

static size_t
size_of(handle type)
{
    for (int i = 0; i < TYPES; i++) {
        if (types[i] == type) {
            return type_sizes[i];
        }
    }
    fprintf(stderr, "mpi_double: a datatype that is not one of MPI's own\n");
    abort();
}

static ring *
ring_of(int from, int to)
{
    return &shared->rings[from * world_size + to];
}

/* Writes as many bytes as there is room for, and returns their number. */
static size_t
put(ring *to, const char *bytes, size_t size)
{
    size_t at = atomic_load(&to->written), room = RING - (at - atomic_load(&to->taken));

    size = size < room ? size : room;
    for (size_t done = 0; done < size;) {
        size_t place = (at + done) % RING, left = size - done;
        size_t part = left < RING - place ? left : RING - place;
        memcpy(to->bytes + place, bytes + done, part);
        done += part;
    }
    atomic_store(&to->written, at + size);
    return size;
}

static size_t
take(ring *from, char *bytes, size_t size)
{
    size_t at = atomic_load(&from->taken), there = atomic_load(&from->written) - at;

    size = size < there ? size : there;
    for (size_t done = 0; done < size;) {
        size_t place = (at + done) % RING, left = size - done;
        size_t part = left < RING - place ? left : RING - place;
        memcpy(bytes + done, from->bytes + place, part);
        done += part;
    }
    atomic_store(&from->taken, at + size);
    return size;
}

static bool
fits(const request *posted, const message *came)
{
    return posted->context == came->head.context
           && (posted->tag == ANY_TAG || posted->tag == came->head.tag)
           && (posted->peer < 0 || posted->peer == came->source);
}

static request *new_request(bool is_send, const comm *in, int tag);

/* The bytes that follow a head. */
static size_t
payload(int kind, size_t size)
{
    return kind == PACKET || kind == DATA ? size : 0;
}

/* Lets the sender of a large message send its data to `posted`. */
static void
accept_offer(request *posted, const message *came)
{
    request *answer = new_request(true, &comms[0], 0);

    posted->awaits_peer = true;
    posted->data_turn = answer->data_turn = came->head.turn;
    posted->data_from = answer->peer = came->source;
    answer->kind = ACCEPT;
}

static void
deliver(request *posted, message *came)
{
    size_t size = came->head.size;

    if (came->head.kind == OFFER) {
        accept_offer(posted, came);
        free(came->bytes);
        free(came);
        return;
    }
    posted->result = size > posted->capacity ? ERR_TRUNCATE : SUCCESS;
    size = size < posted->capacity ? size : posted->capacity;
    if (size > 0) {
        memcpy(posted->data, came->bytes, size);
    }
    posted->moved = size;
    for (int i = 0; i < posted->size; i++) {
        posted->source = posted->ranks[i] == came->source ? i : posted->source;
    }
    posted->is_done = true;
    free(came->bytes);
    free(came);
}

/* Delivers a message to the oldest receive that it fits, or queues it. */
static void
sort_in(message *came)
{
    request *first = NULL;

    for (request *each = requests; each < requests_end; each++) {
        if (each->is_used && !each->is_send && !each->is_done && !each->awaits_peer
            && fits(each, came) && (first == NULL || each->turn < first->turn)) {
            first = each;
        }
    }
    if (first != NULL) {
        deliver(first, came);
        return;
    }
    came->next = NULL;
    *arrived_end = came;
    arrived_end = &came->next;
}

/* Handles the answer to an offer, or the data that were accepted. */
static void
continue_large(message *came)
{
    bool is_answer = came->head.kind == ACCEPT;

    for (request *each = requests; each < requests_end; each++) {
        uint64_t turn = is_answer ? each->turn : each->data_turn;
        int peer = is_answer ? each->peer : each->data_from;
        if (each->is_used && each->awaits_peer && each->is_send == is_answer
            && turn == came->head.turn && peer == came->source) {
            each->awaits_peer = false;
            if (!is_answer) {
                deliver(each, came);
                return;
            }
        }
    }
    free(came->bytes);
    free(came);
}

static void
receive_from(int source)
{
    ring *from = ring_of(source, world_rank);

    for (;;) {
        message *came = arriving[source];
        if (came == NULL) {
            if (atomic_load(&from->written) - atomic_load(&from->taken)
                < sizeof(head)) {
                return;
            }
            came = arriving[source] = calloc(1, sizeof *came);
            take(from, (char *)&came->head, sizeof(head));
            came->source = source;
            came->bytes = malloc(payload(came->head.kind, came->head.size) + 1);
        }
        size_t size = payload(came->head.kind, came->head.size);
        came->got += take(from, came->bytes + came->got, size - came->got);
        if (came->got < size) {
            return;
        }
        arriving[source] = NULL;
        if (came->head.kind == PACKET || came->head.kind == OFFER) {
            sort_in(came);
        } else {
            continue_large(came);
        }
    }
}

/* Handles that all bytes of a send, or of its offer, are in the ring. */
static void
end_sending(request *sent)
{
    if (sent->kind == OFFER) {
        sent->kind = DATA;
        sent->awaits_peer = true;
        sent->moved = 0;
    } else if (sent->kind == ACCEPT) {
        sent->is_used = false;
    } else {
        sent->is_done = true;
    }
}

/* Returns the send to that rank whose bytes go next: one that has begun, or the oldest. */
static request *
next_send(int to)
{
    request *next = NULL;

    for (request *each = requests; each < requests_end; each++) {
        if (each->is_used && each->is_send && !each->is_done && !each->awaits_peer
            && each->peer == to) {
            if (each->moved > 0) {
                return each;
            }
            next = next == NULL || each->turn < next->turn ? each : next;
        }
    }
    return next;
}

/* Moves bytes of a send to that rank, as far as there is room; true if it has gone. */
static bool
send_to(int to)
{
    request *first = next_send(to);

    if (first == NULL) {
        return false;
    }
    ring *ring = ring_of(world_rank, to);
    if (first->moved == 0) {
        head said = {first->kind, first->context, first->tag, first->capacity,
                     first->kind == ACCEPT ? first->data_turn : first->turn};
        if (RING - (atomic_load(&ring->written) - atomic_load(&ring->taken))
            < sizeof said) {
            return false;
        }
        first->moved = put(ring, (const char *)&said, sizeof said);
    }
    size_t at = first->moved - sizeof(head);
    size_t size = payload(first->kind, first->capacity);
    at += put(ring, first->data + at, size - at);
    first->moved = at + sizeof(head);
    if (at == size) {
        end_sending(first);
    }
    return at == size;
}

static void
progress(void)
{
    for (int rank = 0; rank < world_size; rank++) {
        while (send_to(rank)) {
        }
        receive_from(rank);
    }
}

static request *
new_request(bool is_send, const comm *in, int tag)
{
    for (request *each = requests; each < requests + REQUESTS; each++) {
        if (!each->is_used) {
            requests_end = each < requests_end ? requests_end : each + 1;
            *each = (request){.is_used = true,
                              .is_send = is_send,
                              .context = in->context * 2,
                              .tag = tag,
                              .ranks = in->ranks,
                              .size = in->size,
                              .turn = ++turns,
                              .source = -1};
            return each;
        }
    }
    fprintf(stderr, "mpi_double: too many requests\n");
    abort();
}

static request *
begin_send(const void *data, size_t size, int peer, int tag, const comm *in)
{
    request *sent = new_request(true, in, tag);

    sent->data = (char *)(uintptr_t)data;
    sent->capacity = size;
    sent->kind = size > EAGER ? OFFER : PACKET;
    sent->peer = in->ranks[peer];
    return sent;
}

static request *
begin_receive(void *data, size_t size, int peer, int tag, const comm *in)
{
    request *wanted = new_request(false, in, tag);

    wanted->data = data;
    wanted->capacity = size;
    wanted->peer = peer == ANY_SOURCE ? -1 : in->ranks[peer];
    return wanted;
}

/* Returns the link to the first queued message that fits, or the end of the list. */
static message **
find_link(const request *wanted)
{
    message **link = &arrived;

    while (*link != NULL && !fits(wanted, *link)) {
        link = &(*link)->next;
    }
    return link;
}

static message *
unlink_arrived(message **link)
{
    message *came = *link;

    *link = came->next;
    if (arrived_end == &came->next) {
        arrived_end = link;
    }
    return came;
}

/* Delivers a queued message to a new receive, if one fits; called once the
 * receive's context is set. */
static void
find_arrived(request *wanted)
{
    message **link = find_link(wanted);

    if (*link != NULL) {
        deliver(wanted, unlink_arrived(link));
    }
}

static void
put_size(size_t size, int *words)
{
    memcpy(words + AT_BYTES, &size, sizeof size);
#ifdef MPICH
    words[1] = (int)(size >> 32) << 1;
#endif
}

static void
tell(const message *came, const comm *of, int *words)
{
    for (int rank = 0; rank < of->size; rank++) {
        words[AT_SOURCE] = of->ranks[rank] == came->source ? rank : words[AT_SOURCE];
    }
    words[AT_TAG] = came->head.tag;
    put_size(came->head.size, words);
}

static handle
handle_of(const request *each)
{
    return made(MADE_REQUEST, (int)(each - requests));
}

/* The library as a whole. */

static void
start(void)
{
    const char *path = setting_text("DOUBLE_MPI_JOB"), *rank = getenv("RANK");
    const char *size = getenv("WORLD_SIZE"),
               *threads = setting_text("DOUBLE_MPI_THREADS");
    int fd = path == NULL ? -1 : open(path, O_RDWR);

    world_rank = path == NULL || rank == NULL ? 0 : atoi(rank);
    world_size = path == NULL || size == NULL ? 1 : atoi(size);
    size_t bytes = sizeof(job) + (size_t)(world_size * world_size) * sizeof(ring);
    if (world_size > RANKS || (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0)) {
        abort();
    }
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
    if (shared == MAP_FAILED) {
        abort();
    }
    if (fd >= 0) {
        close(fd);
    }
    comms[0] =
        (comm){.is_used = true, .context = 0, .rank = world_rank, .size = world_size};
    for (int i = 0; i < world_size; i++) {
        comms[0].ranks[i] = i;
    }
    level = threads == NULL ? LEVEL_MULTIPLE : atoi(threads);
    is_started = true;
}

int
MPI_Init_thread(int *argc, char ***argv, int asked, int *provided)
{
    (void)argc;
    (void)argv;
    (void)asked;
    pthread_mutex_lock(&lock);
    start();
    *provided = level;
    pthread_mutex_unlock(&lock);
    return fails("MPI_Init_thread");
}

int
MPI_Query_thread(int *provided)
{
    *provided = level;
    return SUCCESS;
}

int
MPI_Initialized(int *flag)
{
    *flag = is_started;
    return SUCCESS;
}

int
MPI_Finalized(int *flag)
{
    pthread_mutex_lock(&lock);
    *flag = is_over;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int
MPI_Error_string(int code, char *text, int *size)
{
    *size = sprintf(text, "%s",
                    code == ERR_TRUNCATE ? "MPI_ERR_TRUNCATE: message truncated"
                    : code == ERR_TAG    ? "MPI_ERR_TAG: invalid tag"
                                         : "MPI_ERR_OTHER: known error not in list");
    return SUCCESS;
}

int
MPI_Get_library_version(char *text, int *size)
{
    *size = sprintf(text, "%s", TEXT);
    return SUCCESS;
}

#if defined(STANDARD) || defined(MPICH)
int
MPI_Abi_get_version(int *major, int *minor)
{
#ifdef STANDARD
    *major = 1;
    *minor = 0;
#else
    *major = *minor = -1;
#endif
    return SUCCESS;
}
#endif

/* Communicators, types and operations. */

int
MPI_Comm_rank(handle in, int *rank)
{
    *rank = comm_of(in)->rank;
    return SUCCESS;
}

int
MPI_Comm_size(handle in, int *size)
{
    *size = comm_of(in)->size;
    return SUCCESS;
}

int
MPI_Comm_get_attr(handle in, int key, void *value, int *is_set)
{
    static int last_tag = LAST_TAG;

    *is_set = in == WORLD_HANDLE && key == TAG_UB;
    if (*is_set) {
        *(int **)value = &last_tag;
    }
    return SUCCESS;
}

int
MPI_Comm_create_keyval(copy_fn *copy, delete_fn *delete, int *key, void *extra)
{
    (void)copy;
    (void)extra;
    delete_attribute = delete;
    *key = 1;
    return SUCCESS;
}

int
MPI_Comm_set_attr(handle in, int key, void *value)
{
    (void)value;
    is_attribute_set = in == others[3] && key == 1;
    return is_attribute_set ? fails("MPI_Comm_set_attr") : ERR_OTHER;
}

int
MPI_Comm_free(handle *in)
{
    pthread_mutex_lock(&lock);
    comm_of(*in)->is_used = false;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int
MPI_Comm_set_errhandler(handle in, handle errhandler)
{
    (void)in;
    return errhandler == others[1] ? SUCCESS : ERR_OTHER;
}

static int
find_free(comm *among)
{
    for (int i = 1; i < COMMS; i++) {
        if (!among[i].is_used) {
            among[i] = (comm){.is_used = true, .rank = -1};
            return i;
        }
    }
    abort();
}

int
MPI_Comm_group(handle in, handle *group)
{
    pthread_mutex_lock(&lock);
    int index = find_free(groups);
    groups[index] = *comm_of(in);
    *group = made(MADE_GROUP, index);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int
MPI_Group_incl(handle all, int count, const int *ranks, handle *group)
{
    pthread_mutex_lock(&lock);
    int index = find_free(groups);
    groups[index].size = count;
    for (int i = 0; i < count; i++) {
        groups[index].ranks[i] = groups[index_of(all)].ranks[ranks[i]];
    }
    *group = made(MADE_GROUP, index);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int
MPI_Group_free(handle *group)
{
    pthread_mutex_lock(&lock);
    groups[index_of(*group)].is_used = false;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int
wait_locked(request *each)
{
    for (progress(); !each->is_done; progress()) {
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
    }
    each->is_used = false;
    return each->result;
}

/* Messages of collectives have odd contexts. */
static request *
send_inside(const comm *in, const void *data, size_t size, int to, int tag)
{
    request *sent = begin_send(data, size, to, tag, in);

    sent->context++;
    return sent;
}

static request *
receive_inside(const comm *in, void *data, size_t size, int from, int tag)
{
    request *wanted = begin_receive(data, size, from, tag, in);

    wanted->context++;
    find_arrived(wanted);
    return wanted;
}

int
MPI_Comm_create_group(handle in, handle group, int tag, handle *out)
{
    if (tag < 0 || tag > LAST_TAG) {
        return ERR_TAG;
    }
    pthread_mutex_lock(&lock);
    comm *from = comm_of(in), members = groups[index_of(group)];
    int index = find_free(comms);
    comm *self = &comms[index];
    self->size = members.size;
    for (int i = 0; i < members.size; i++) {
        self->ranks[i] = members.ranks[i];
        self->rank = members.ranks[i] == world_rank ? i : self->rank;
    }
    if (self->rank == 0) {
        self->context = atomic_fetch_add(&shared->contexts, 1) + 1;
        for (int i = 1; i < self->size; i++) {
            wait_locked(
                send_inside(from, &self->context, sizeof(int), self->ranks[i], tag));
        }
    } else {
        wait_locked(
            receive_inside(from, &self->context, sizeof(int), self->ranks[0], tag));
    }
    *out = made(MADE_COMM, index);
    pthread_mutex_unlock(&lock);
    return fails("MPI_Comm_create_group");
}

/* Messages. */

/* Sends complete when their bytes are in the ring: small ones whether received or not. */
int
MPI_Isend(const void *data, int count, handle type, int peer, int tag, handle in,
          handle *out)
{
    const char *least = setting_text("DOUBLE_MPI_FAIL_BYTES");
    size_t size = (size_t)count * size_of(type);

    if (least != NULL && size >= (size_t)atoi(least) && fails("MPI_Isend")) {
        wait_for_others(0);
        return ERR_OTHER;
    }
    if (tag < 0 || tag > LAST_TAG) {
        return ERR_TAG;
    }
    pthread_mutex_lock(&lock);
    *out = handle_of(begin_send(data, size, peer, tag, comm_of(in)));
    progress();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int
MPI_Irecv(void *data, int count, handle type, int peer, int tag, handle in, handle *out)
{
    if (tag < 0 || tag > LAST_TAG) {
        return ERR_TAG;
    }
    pthread_mutex_lock(&lock);
    request *wanted =
        begin_receive(data, (size_t)count * size_of(type), peer, tag, comm_of(in));
    find_arrived(wanted);
    *out = handle_of(wanted);
    pthread_mutex_unlock(&lock);
    return fails("MPI_Irecv");
}

int
MPI_Iprobe(int source, int tag, handle in, int *is_there, void *status)
{
    if (tag < 0 || tag > LAST_TAG) {
        return ERR_TAG;
    }
    pthread_mutex_lock(&lock);
    if (is_ending) {
        fprintf(stderr, "mpi_double: MPI_Iprobe after MPI_Finalize was called\n");
        abort();
    }
    progress();
    const comm *of = comm_of(in);
    request sought = {.context = of->context * 2,
                      .tag = tag,
                      .peer = source == ANY_SOURCE ? -1 : of->ranks[source]};
    message **link = find_link(&sought);
    *is_there = *link != NULL;
    if (*is_there) {
        tell(*link, of, status);
    }
    pthread_mutex_unlock(&lock);
    return fails("MPI_Iprobe");
}

static void test_collective(request *whole);

int
MPI_Test(handle *tested, int *is_done, void *status)
{
    int *words = status, result = SUCCESS;

    pthread_mutex_lock(&lock);
    progress();
    *is_done = 1;
    if (*tested != REQUEST_NULL) {
        request *each = &requests[index_of(*tested)];
        if (each->all != NULL && !each->is_done) {
            test_collective(each);
        }
        *is_done = each->is_done;
        if (each->is_done) {
            result = each->result;
            if (status != STATUS_IGNORE) {
                words[AT_SOURCE] = each->source;
                words[AT_TAG] = each->tag;
                put_size(each->moved, words);
            }
            each->is_used = false;
            *tested = REQUEST_NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Reductions: the numbers of all ranks, joined in the order of ranks. */

#define JOIN(ctype, expression)              \
    do {                                     \
        ctype *left = inout;                 \
        const ctype *right = in;             \
        for (size_t i = 0; i < count; i++) { \
            ctype a = left[i], b = right[i]; \
            left[i] = (ctype)(expression);   \
        }                                    \
    } while (0)
#define ARITHMETIC(ctype)   \
    case SUM:               \
        JOIN(ctype, a + b); \
        return SUCCESS;     \
    case PROD:              \
        JOIN(ctype, a *b);  \
        return SUCCESS
#define ORDER(ctype)                \
    case MIN:                       \
        JOIN(ctype, a < b ? a : b); \
        return SUCCESS;             \
    case MAX:                       \
        JOIN(ctype, a > b ? a : b); \
        return SUCCESS
#define LOGIC(ctype)           \
    case LAND:                 \
        JOIN(ctype, a &&b);    \
        return SUCCESS;        \
    case LOR:                  \
        JOIN(ctype, a || b);   \
        return SUCCESS;        \
    case LXOR:                 \
        JOIN(ctype, !a != !b); \
        return SUCCESS
#define BITS(ctype)         \
    case BAND:              \
        JOIN(ctype, a &b);  \
        return SUCCESS;     \
    case BOR:               \
        JOIN(ctype, a | b); \
        return SUCCESS;     \
    case BXOR:              \
        JOIN(ctype, a ^ b); \
        return SUCCESS
#define WRAPPED(name, ctype)                                                  \
    static int join_##name(int op, void *inout, const void *in, size_t count) \
    {                                                                         \
        switch (op) {                                                         \
            ARITHMETIC(ctype);                                                \
            ORDER(ctype);                                                     \
            LOGIC(ctype);                                                     \
            BITS(ctype);                                                      \
        default:                                                              \
            return ERR_OTHER;                                                 \
        }                                                                     \
    }
#define FLOATS(name, ctype)                                                   \
    static int join_##name(int op, void *inout, const void *in, size_t count) \
    {                                                                         \
        switch (op) {                                                         \
            ARITHMETIC(ctype);                                                \
            ORDER(ctype);                                                     \
        default:                                                              \
            return ERR_OTHER;                                                 \
        }                                                                     \
    }
#define COMPLEXES(name, ctype)                                                \
    static int join_##name(int op, void *inout, const void *in, size_t count) \
    {                                                                         \
        switch (op) {                                                         \
            ARITHMETIC(ctype);                                                \
        default:                                                              \
            return ERR_OTHER;                                                 \
        }                                                                     \
    }
WRAPPED(i8, int8_t)
WRAPPED(u8, uint8_t)
WRAPPED(i16, int16_t)
WRAPPED(u16, uint16_t)
WRAPPED(i32, int32_t)
WRAPPED(u32, uint32_t)
WRAPPED(i64, int64_t)
WRAPPED(u64, uint64_t)
FLOATS(f32, float)
FLOATS(f64, double)
COMPLEXES(c64, float complex)
COMPLEXES(c128, double complex)

typedef int join_fn(int, void *, const void *, size_t);
static join_fn *const joins[TYPES] = {
    join_u8,  join_i8,  join_u8,  join_i16, join_u16, join_i32,  join_u32,
    join_i64, join_u64, join_f32, join_f64, join_c64, join_c128,
};

static int
join(handle op, handle type, void *inout, void *in, size_t count)
{
    for (int i = 0; i < OPS; i++) {
        for (int k = 0; ops[i] == op && k < TYPES; k++) {
            if (types[k] == type) {
                return joins[k](i, inout, in, count);
            }
        }
    }
    return ERR_OTHER;
}

/* Collectives: all consist of blocks from each rank to each, and of a reduction of what
 * has come to one array behind the other. */

typedef struct block {
    char *data;
    size_t size;
} block;

typedef struct collective {
    request *sent[RANKS], *wanted[RANKS];
    int result;
    char *came;   /* the arrays of all ranks, to be reduced; or NULL */
    char *output; /* of the reduction */
    size_t count;
    int ranks; /* the first of them that are reduced */
    handle type, op;
} collective;

static void
reduce_what_came(collective *self)
{
    size_t size = self->count * size_of(self->type);

    for (int i = 1; i < self->ranks && self->result == SUCCESS && size > 0; i++) {
        self->result = join(self->op, self->type, self->came,
                            self->came + (size_t)i * size, self->count);
    }
    if (self->ranks > 0 && size > 0) {
        memcpy(self->output, self->came, size);
    }
}

/* Ends the collective once all its messages have ended. */
static void
test_collective(request *whole)
{
    collective *self = whole->all;
    bool is_done = true;

    for (int i = 0; i < 2 * RANKS; i++) {
        request **part = i < RANKS ? &self->wanted[i] : &self->sent[i - RANKS];
        if (*part != NULL && (*part)->is_done) {
            self->result = self->result != SUCCESS ? self->result : (*part)->result;
            (*part)->is_used = false;
            *part = NULL;
        }
        is_done &= *part == NULL;
    }
    if (is_done) {
        if (self->came != NULL) {
            reduce_what_came(self);
        }
        whole->is_done = true;
        whole->result = self->result;
        free(self->came);
        free(self);
        whole->all = NULL;
    }
}

/* Starts one; `reduced` describes the reduction, or is NULL. */
static int
start_collective(const char *call, handle of, const block *outgoing,
                 const block *incoming, const collective *reduced, handle *out)
{
    comm *in = comm_of(of);
    collective *self = calloc(1, sizeof *self);

    stop_in(call);
    if (fails(call)) {
        wait_for_others(1);
        free(reduced == NULL ? NULL : reduced->came);
        free(self);
        return ERR_OTHER;
    }
    atomic_fetch_add(&shared->begun[world_rank], 1);
    if (reduced != NULL) {
        *self = *reduced;
    }
    pthread_mutex_lock(&lock);
    int tag = in->calls++ % LAST_TAG;
    request *whole = new_request(false, in, tag);
    whole->context = -1; /* no message fits it */
    whole->all = self;
    for (int i = 0; i < in->size; i++) {
        if (i != in->rank && incoming[i].data != NULL) {
            self->wanted[i] =
                receive_inside(in, incoming[i].data, incoming[i].size, i, tag);
        }
        if (i != in->rank && outgoing[i].data != NULL) {
            self->sent[i] = send_inside(in, outgoing[i].data, outgoing[i].size, i, tag);
        }
    }
    block own = incoming[in->rank];
    if (own.size > 0 && own.data != outgoing[in->rank].data) {
        memcpy(own.data, outgoing[in->rank].data, own.size);
    }
    progress();
    *out = handle_of(whole);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static block
block_at(const void *data, size_t at, size_t size)
{
    static char nothing[1];

    return (block){size == 0 ? nothing : (char *)(uintptr_t)data + at, size};
}

int
MPI_Ibcast(void *data, int count, handle type, int root, handle in, handle *out)
{
    const comm *self = comm_of(in);
    block all = block_at(data, 0, (size_t)count * size_of(type));
    block outgoing[RANKS] = {{NULL, 0}}, incoming[RANKS] = {{NULL, 0}};

    for (int i = 0; i < self->size && self->rank == root; i++) {
        outgoing[i] = all;
    }
    if (self->rank != root) {
        incoming[root] = all;
    }
    return start_collective("MPI_Ibcast", in, outgoing, incoming, NULL, out);
}

/* Each rank's block to all ranks. */
static int
gather_all(const char *call, const void *input, void *output, size_t size, handle in,
           const collective *reduced, handle *out)
{
    const comm *self = comm_of(in);
    block outgoing[RANKS], incoming[RANKS];

    for (int i = 0; i < self->size; i++) {
        incoming[i] = block_at(output, (size_t)i * size, size);
        outgoing[i] = input == IN_PLACE
                          ? block_at(output, (size_t)self->rank * size, size)
                          : block_at(input, 0, size);
    }
    return start_collective(call, in, outgoing, incoming, reduced, out);
}

int
MPI_Iallgather(const void *input, int count, handle type, void *output, int each,
               handle output_type, handle in, handle *out)
{
    (void)count;
    (void)type;
    return gather_all("MPI_Iallgather", input, output,
                      (size_t)each * size_of(output_type), in, NULL, out);
}

int
MPI_Iallreduce(const void *input, void *output, int count, handle type, handle op,
               handle in, handle *out)
{
    const comm *self = comm_of(in);
    size_t size = (size_t)count * size_of(type);
    collective all = {.came = malloc(size * (size_t)self->size + 1),
                      .output = output,
                      .count = (size_t)count,
                      .ranks = self->size,
                      .type = type,
                      .op = op};

    return gather_all("MPI_Iallreduce", input == IN_PLACE ? output : input, all.came,
                      size, in, &all, out);
}

int
MPI_Ibarrier(handle in, handle *out)
{
    static char none[RANKS];

    return gather_all("MPI_Ibarrier", IN_PLACE, none, 1, in, NULL, out);
}

/* All ranks come to the end of the world together. */
static int
meet_at_end(void)
{
    handle request;
    int is_done = 0;
    int result = MPI_Ibarrier(WORLD_HANDLE, &request);

    while (result == SUCCESS && !is_done) {
        result = MPI_Test(&request, &is_done, STATUS_IGNORE);
        sched_yield();
    }
    return result;
}

int
MPI_Finalize(void)
{
    if (is_attribute_set) {
        delete_attribute(others[3], 1, NULL, NULL);
    }
    pthread_mutex_lock(&lock);
    is_ending = true;
    pthread_mutex_unlock(&lock);
    int result = meet_at_end();

    pthread_mutex_lock(&lock);
    is_over = true;
    for (const request *each = requests; each < requests + REQUESTS; each++) {
        if (each->is_used) {
            fprintf(
                stderr,
                "mpi_double: MPI_Finalize with a request pending: a %s with tag %d, "
                "%zu of %zu bytes, %s\n",
                each->is_send ? "send" : "receive", each->tag, each->moved,
                each->capacity, each->is_done ? "done" : "not done");
            abort();
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}
