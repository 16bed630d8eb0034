/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Unix sockets, by which processes of one host pass messages and descriptors: datagrams
 * to a name, and pairs whose ends notice each other's end.  Nothing takes time but the
 * calls. */
#include "local.h"

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* What a queue holds; the kernel's limit for datagrams. */
#define QUEUE 10
#define MESSAGE_SIZE 8192
#define PASSED 256

struct sim_message {
    sim_message *next;
    const sim_process *sender;
    uint8_t *bytes;
    size_t size;
    sim_object **passed;
    int passed_count;
};

int __real_close(int fd);
int __wrap_socketpair(int family, int type, int protocol, int ends[2]);

static sim_object *named;

static int
fail(int error)
{
    errno = error;
    return -1;
}

/* Objects. */

sim_object *
sim_object_new(sim_kind kind)
{
    sim_object *made = sim_allocate(sizeof *made);

    made->kind = kind;
    made->references = 1;
    made->of = sim_process_current();
    return made;
}

static void
drop_message(sim_message *message)
{
    for (int i = 0; i < message->passed_count; i++) {
        sim_object_drop(message->passed[i]);
    }
    sim_release(message->passed);
    sim_release(message->bytes);
    sim_release(message);
}

static sim_message *
take_first(sim_object *object)
{
    sim_message *first = object->first;

    object->first = first->next;
    object->queued--;
    return first;
}

static void
forget_name(sim_object *object)
{
    sim_object **at = &named;

    while (*at != NULL && *at != object) {
        at = &(*at)->next_named;
    }
    if (*at != NULL) {
        *at = object->next_named;
    }
}

static void
close_local(sim_object *object)
{
    object->is_closed = true;
    forget_name(object);
    if (object->peer != NULL) {
        object->peer->is_reset = object->queued > 0;
    }
    while (object->queued > 0) {
        drop_message(take_first(object));
    }
    if (object->peer != NULL && object->peer->is_closed) {
        sim_release(object->peer);
        sim_release(object);
    } else if (object->peer == NULL) {
        sim_release(object);
    }
}

void
sim_object_drop(sim_object *object)
{
    if (--object->references > 0) {
        return;
    }
    if (object->kind == SIM_LOCAL) {
        close_local(object);
        return;
    }
    if (object->kind == SIM_MEMORY) {
        __real_close(object->memory);
    }
    sim_release(object);
}

int
sim_object_open(sim_object *object)
{
    sim_descriptor *opened;
    int fd = sim_descriptor_open(object->kind, &opened);

    if (fd < 0) {
        int error = errno;
        sim_object_drop(object);
        return fail(error);
    }
    opened->object = object;
    opened->is_nonblocking = true;
    return fd;
}

/* Sockets. */

int
sim_local_socket(void)
{
    return sim_object_open(sim_object_new(SIM_LOCAL));
}

int
__wrap_socketpair(int family, int type, int protocol, int ends[2])
{
    (void)protocol;
    sim_call("socketpair");
    if (family != AF_UNIX || (type & SOCK_SEQPACKET) != SOCK_SEQPACKET) {
        sim_fail("this socketpair() is not simulated");
    }
    sim_object *first = sim_object_new(SIM_LOCAL);
    sim_object *second = sim_object_new(SIM_LOCAL);
    first->peer = second;
    second->peer = first;
    ends[0] = sim_object_open(first);
    if (ends[0] < 0) {
        sim_object_drop(second);
        return fail(EMFILE);
    }
    ends[1] = sim_object_open(second);
    if (ends[1] < 0) {
        sim_descriptor_close(sim_descriptor_at(ends[0]));
        return fail(EMFILE);
    }
    return 0;
}

/* Names are abstract: behind a zero. */
static void
read_name(const struct sockaddr *address, socklen_t size, char name[SIM_NAME_SIZE])
{
    const struct sockaddr_un *local = (const void *)address;
    size_t count = size - offsetof(struct sockaddr_un, sun_path) - 1;

    count = count < SIM_NAME_SIZE - 1 ? count : SIM_NAME_SIZE - 1;
    memset(name, 0, SIM_NAME_SIZE);
    memcpy(name, local->sun_path + 1, count);
}

static sim_object *
find_named(const char *name)
{
    sim_object *found = named;

    while (found != NULL
           && (strcmp(found->name, name) != 0
               || found->of->host != sim_process_current()->host)) {
        found = found->next_named;
    }
    return found;
}

int
sim_local_bind(sim_object *object, const struct sockaddr *address, socklen_t size)
{
    char name[SIM_NAME_SIZE];

    read_name(address, size, name);
    if (find_named(name) != NULL) {
        return fail(EADDRINUSE);
    }
    memcpy(object->name, name, sizeof name);
    object->next_named = named;
    named = object;
    return 0;
}

int
sim_local_set(sim_object *object, int name, const void *value)
{
    const struct sock_fprog *program = value;

    if (name == SO_PASSCRED) {
        object->wants_sender = *(const int *)value != 0;
    }
    if (name != SO_ATTACH_FILTER) {
        return 0;
    }
    if (program->len > SIM_FILTER_STEPS) {
        sim_fail("a filter of %d steps", program->len);
    }
    object->filter_steps = program->len;
    for (int i = 0; i < program->len; i++) {
        const struct sock_filter *step = &program->filter[i];
        object->filter[i] = (sim_filter_step){step->code, step->jt, step->jf, step->k};
    }
    return 0;
}

static uint32_t
word_at(const sim_message *message, uint32_t offset)
{
    uint32_t word = 0;

    for (uint32_t i = offset; i < offset + 4 && i < message->size; i++) {
        word = word << 8 | message->bytes[i];
    }
    return word;
}

/* Returns whether the socket's filter lets the message pass. */
static bool
passes_filter(const sim_object *object, const sim_message *message)
{
    uint32_t word = 0;

    for (int i = 0; i < object->filter_steps; i++) {
        const sim_filter_step *step = &object->filter[i];
        switch (step->code) {
        case BPF_LD | BPF_W | BPF_LEN:
            word = (uint32_t)message->size;
            break;
        case BPF_LD | BPF_W | BPF_ABS:
            word = word_at(message, step->value);
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            i += word == step->value ? step->if_true : step->if_false;
            break;
        case BPF_RET | BPF_K:
            return step->value > 0;
        default:
            sim_fail("step %x of a filter is not simulated", step->code);
        }
    }
    return true;
}

/* With some seeds a queue is nearly always full. */
static int
queue_limit(void)
{
    return sim.seed % 4 == 1 ? 1 : QUEUE;
}

static void
pass_descriptors(sim_message *made, const struct msghdr *message)
{
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);

    if (header == NULL || header->cmsg_type != SCM_RIGHTS) {
        return;
    }
    made->passed_count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    made->passed = sim_allocate((size_t)made->passed_count * sizeof *made->passed);
    for (int i = 0; i < made->passed_count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(header) + (size_t)i * sizeof fd, sizeof fd);
        const sim_descriptor *descriptor = sim_descriptor_of(fd);
        if (descriptor == NULL || descriptor->object == NULL) {
            sim_fail("descriptor %d cannot be passed", fd);
        }
        made->passed[i] = descriptor->object;
        descriptor->object->references++;
    }
}

static sim_message *
new_message(const struct msghdr *message)
{
    sim_message *made = sim_allocate(sizeof *made);
    const struct iovec *part = message->msg_iov;

    *made = (sim_message){.sender = sim_process_current(), .size = part->iov_len};
    made->bytes = sim_allocate(part->iov_len + 1);
    memcpy(made->bytes, part->iov_base, part->iov_len);
    pass_descriptors(made, message);
    return made;
}

static void
append(sim_object *to, sim_message *message)
{
    if (to->queued++ == 0) {
        to->first = message;
    } else {
        to->last->next = message;
    }
    to->last = message;
}

ssize_t
sim_local_send(sim_object *object, const struct msghdr *message)
{
    sim_object *to = object->peer;
    char name[SIM_NAME_SIZE];

    if (message->msg_name != NULL) {
        read_name(message->msg_name, message->msg_namelen, name);
        to = find_named(name);
    }
    if (to == NULL || to->is_closed) {
        return fail(object->peer == NULL ? ECONNREFUSED : EPIPE);
    }
    sim_message *made = new_message(message);
    ssize_t size = (ssize_t)made->size;
    if (!passes_filter(to, made)) {
        drop_message(made);
        return size;
    }
    if (to->queued >= queue_limit()) {
        drop_message(made);
        return fail(EAGAIN);
    }
    append(to, made);
    return size;
}

/* Adds ancillary data; returns its bytes. */
static void *
add_control(struct msghdr *message, size_t room, int type, size_t size)
{
    size_t used = message->msg_controllen;

    if (used + CMSG_SPACE(size) > room) {
        sim_fail("there is no room for what comes with a message");
    }
    struct cmsghdr *header = (void *)((char *)message->msg_control + used);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(size);
    message->msg_controllen = used + CMSG_SPACE(size);
    return CMSG_DATA(header);
}

/* As the kernel: those that there is no room for in the process are left out. */
static void
open_passed(sim_message *from, struct msghdr *message, size_t room)
{
    int opened[PASSED];
    int count = 0;

    for (int i = 0; i < from->passed_count; i++) {
        int fd = (message->msg_flags & MSG_CTRUNC) != 0
                     ? -1
                     : sim_object_open(from->passed[i]);
        if (fd >= 0) {
            opened[count++] = fd;
        } else if ((message->msg_flags & MSG_CTRUNC) != 0) {
            sim_object_drop(from->passed[i]);
        }
        message->msg_flags |= fd < 0 ? MSG_CTRUNC : 0;
    }
    from->passed_count = 0;
    if (count > 0) {
        size_t size = (size_t)count * sizeof *opened;
        memcpy(add_control(message, room, SCM_RIGHTS, size), opened, size);
    }
}

ssize_t
sim_local_receive(sim_object *object, struct msghdr *message)
{
    size_t room = message->msg_controllen;

    if (object->is_reset) {
        object->is_reset = false;
        return fail(ECONNRESET);
    }
    if (object->queued == 0 && (object->peer == NULL || !object->peer->is_closed)) {
        return fail(EAGAIN);
    }
    message->msg_controllen = 0;
    message->msg_flags = 0;
    if (object->queued == 0) {
        return 0;
    }
    sim_message *first = take_first(object);
    const struct iovec *part = message->msg_iov;
    size_t size = first->size < part->iov_len ? first->size : part->iov_len;
    memcpy(part->iov_base, first->bytes, size);
    message->msg_flags |= size < first->size ? MSG_TRUNC : 0;
    if (object->wants_sender) {
        struct ucred sender = {.pid = 100 + first->sender->number, .uid = geteuid()};
        memcpy(add_control(message, room, SCM_CREDENTIALS, sizeof sender), &sender,
               sizeof sender);
    }
    open_passed(first, message, room);
    drop_message(first);
    return (ssize_t)size;
}

short
sim_object_events(const sim_object *object)
{
    int events = object->queued > 0 ? POLLIN : 0;

    if (object->kind == SIM_LIFELINE) {
        return object->of->is_alive ? 0 : POLLIN | POLLHUP;
    }
    if (object->kind != SIM_LOCAL) {
        return 0;
    }
    if (object->peer == NULL) {
        return (short)(events | POLLOUT);
    }
    events |= object->is_reset ? POLLERR : 0;
    if (object->peer->is_closed) {
        return (short)(events | POLLIN | POLLOUT | POLLHUP);
    }
    return (short)(events | (object->peer->queued < queue_limit() ? POLLOUT : 0));
}
