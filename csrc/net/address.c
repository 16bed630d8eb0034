/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"

dl_bytes
dl_address_bytes(const dl_address *address)
{
    const struct in6_addr *ip6 = &address->socket.ip6.sin6_addr;

    if (address->socket.any.sa_family == AF_INET) {
        return (dl_bytes){(const uint8_t *)&address->socket.ip4.sin_addr, 4};
    }
    return IN6_IS_ADDR_V4MAPPED(ip6) ? (dl_bytes){&ip6->s6_addr[12], 4}
                                     : (dl_bytes){ip6->s6_addr, 16};
}

uint16_t
dl_address_port(const dl_address *address)
{
    return ntohs(address->socket.any.sa_family == AF_INET
                     ? address->socket.ip4.sin_port
                     : address->socket.ip6.sin6_port);
}

void
dl_address_text(const dl_address *address, char text[DL_ADDRESS_TEXT_SIZE])
{
    const dl_bytes bytes = dl_address_bytes(address);
    const uint16_t port = dl_address_port(address);
    char host[INET6_ADDRSTRLEN] = "?";
    char scope[16] = "";

    inet_ntop(bytes.size == 4 ? AF_INET : AF_INET6, bytes.data, host, sizeof host);
    if (bytes.size == 4) {
        snprintf(text, DL_ADDRESS_TEXT_SIZE, "%s:%u", host, port);
        return;
    }
    /* A link-local address means nothing without its interface. */
    if (address->socket.ip6.sin6_scope_id != 0) {
        snprintf(scope, sizeof scope, "%%%u", address->socket.ip6.sin6_scope_id);
    }
    snprintf(text, DL_ADDRESS_TEXT_SIZE, "[%s%s]:%u", host, scope, port);
}

bool
dl_address_equal(const dl_address *left, const dl_address *right)
{
    return dl_bytes_equal(dl_address_bytes(left), dl_address_bytes(right))
           && dl_address_port(left) == dl_address_port(right);
}

bool
dl_address_is_wildcard(const char *host)
{
    struct in_addr ip4;
    struct in6_addr ip6;

    if (inet_pton(AF_INET, host, &ip4) == 1) {
        return ip4.s_addr == htonl(INADDR_ANY);
    }
    if (inet_pton(AF_INET6, host, &ip6) == 1) {
        return IN6_IS_ADDR_UNSPECIFIED(&ip6);
    }
    return host[0] == '\0';
}

bool
dl_address_is_loopback(const dl_address *address)
{
    const dl_bytes bytes = dl_address_bytes(address);

    return bytes.size == 4 ? bytes.data[0] == IN_LOOPBACKNET
                           : IN6_IS_ADDR_LOOPBACK(&address->socket.ip6.sin6_addr);
}

/* The addresses found, or the reason for failing. */
typedef struct look_up_result {
    int code;  /* the result of getaddrinfo(3) */
    int error; /* errno, for EAI_SYSTEM */
    dl_address *addresses;
    size_t count;
} look_up_result;

static void
copy_found(const struct addrinfo *found, look_up_result *result)
{
    size_t count = 0;

    for (const struct addrinfo *entry = found; entry != NULL; entry = entry->ai_next) {
        count++;
    }
    result->addresses = calloc(count, sizeof *result->addresses);
    if (result->addresses == NULL) {
        result->code = EAI_MEMORY;
        return;
    }
    for (const struct addrinfo *entry = found; entry != NULL; entry = entry->ai_next) {
        dl_address *address = &result->addresses[result->count];
        if (entry->ai_addrlen <= sizeof address->socket) {
            memcpy(&address->socket, entry->ai_addr, entry->ai_addrlen);
            address->size = entry->ai_addrlen;
            result->count++;
        }
    }
}

/* AI_ADDRCONFIG is not set, since it hides "::1" on a host that has no other IPv6
 * address; an address that cannot be reached fails soon enough when it is tried. */
static look_up_result
look_up(const char *host, uint16_t port, int flags)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICSERV | flags,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    look_up_result result = {0};
    char service[8];

    snprintf(service, sizeof service, "%u", port);
    result.code = getaddrinfo(host, service, &hints, &found);
    result.error = errno;
    if (result.code == 0) {
        copy_found(found, &result);
        freeaddrinfo(found);
    }
    return result;
}

/* Moves the addresses to the caller, so that freeing `result` later frees nothing. */
static dl_status
take_result(const char *host, look_up_result *result, dl_address **addresses,
            size_t *count)
{
    if (result->code == EAI_MEMORY) {
        return dl_fail_no_memory();
    }
    if (result->code != 0) {
        return dl_fail(DL_NETWORK, "%s: %s", host,
                       result->code == EAI_SYSTEM ? strerror(result->error)
                                                  : gai_strerror(result->code));
    }
    *addresses = result->addresses;
    *count = result->count;
    result->addresses = NULL;
    return DL_OK;
}

/* A look-up, which outlives its call if the resolver is slow: owned by the call and the
 * helper thread, and freed by the last of them. */
typedef struct look_up_job {
    pthread_mutex_t lock;
    pthread_cond_t condition;
    /* guarded by lock */
    int owners;
    bool is_done;
    look_up_result result;
    /* fixed after init */
    uint16_t port;
    char host[];
} look_up_job;

/* Drops one owner.  Called with the lock held, which it releases. */
static void
leave_job(look_up_job *job)
{
    bool is_last = --job->owners == 0;

    pthread_mutex_unlock(&job->lock);
    if (is_last) {
        pthread_cond_destroy(&job->condition);
        pthread_mutex_destroy(&job->lock);
        free(job->result.addresses);
        free(job);
    }
}

/* The helper thread.  Touches nothing but the job: the call may have
 * returned long ago. */
static void *
run_job(void *argument)
{
    look_up_job *job = argument;
    look_up_result result = look_up(job->host, job->port, 0);

    pthread_mutex_lock(&job->lock);
    job->result = result;
    job->is_done = true;
    pthread_cond_signal(&job->condition);
    leave_job(job);
    return NULL;
}

static dl_status
start_job(const char *host, uint16_t port, look_up_job **started)
{
    size_t size = strlen(host) + 1;
    look_up_job *job = calloc(1, sizeof *job + size);
    pthread_t thread;

    if (job == NULL) {
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&job->lock, NULL);
    dl_condition_init(&job->condition);
    memcpy(job->host, host, size);
    job->port = port;
    job->owners = 2;
    dl_status status = dl_thread_start(&thread, run_job, job);
    /* The thread's reference is dropped with the caller's: no other thread
     * has the job. */
    if (status != DL_OK) {
        pthread_mutex_lock(&job->lock);
        job->owners = 1;
        leave_job(job);
        return status;
    }
    pthread_detach(thread);
    *started = job;
    return DL_OK;
}

/* Waits for the answer, with the job's lock held.  An answer that arrives together with
 * the deadline counts; an interrupt takes precedence, since its exception is set
 * already. */
static dl_status
await_job(look_up_job *job, dl_deadline deadline)
{
    dl_status status = DL_OK;

    while (!job->is_done && status == DL_OK) {
        status = dl_condition_wait(&job->condition, &job->lock, deadline);
    }
    if (status == DL_TIMEOUT && !job->is_done) {
        return dl_fail(DL_TIMEOUT, "%s: the name look-up timed out", job->host);
    }
    return status == DL_TIMEOUT ? DL_OK : status;
}

#define LONGEST_NAME 255

/* Returns whether no resolver can ever know the host: what a name, or an address with
 * an interface that may yet appear, is never written with. */
static bool
is_impossible(const char *host)
{
    bool has_interface = strchr(host, ':') != NULL && strchr(host, '%') != NULL;

    for (const char *next = host; *next != '\0'; next++) {
        unsigned char byte = (unsigned char)*next;
        if (byte <= ' ' || byte == 0x7f || strchr("\"#$&'()*,/;<>?@[\\]^`{|}", byte)
            || (byte == ':' && !has_interface)) {
            return true;
        }
    }
    return host[0] == '\0' || strlen(host) > LONGEST_NAME;
}

static dl_status
fail_impossible(const char *host)
{
    char text[LONGEST_NAME] = "";
    size_t size = 0;
    size_t shown = strnlen(host, sizeof text);

    dl_text_append_escaped(text, sizeof text, &size, host, shown);
    return dl_fail(
        DL_INVALID, "\"%s\" is neither the name nor the address of a host%s", text,
        host[0] == '[' ? ": IPv6 addresses have no brackets here, as in ::1" : "");
}

dl_status
dl_address_resolve(const char *host, uint16_t port, dl_deadline deadline,
                   dl_address **addresses, size_t *count)
{
    look_up_job *job = NULL;
    /* A numeric host is parsed without a server, so no helper is needed; EAI_NONAME
     * means "not numeric". */
    look_up_result numeric = look_up(host, port, AI_NUMERICHOST);

    if (numeric.code != EAI_NONAME) {
        return take_result(host, &numeric, addresses, count);
    }
    if (is_impossible(host)) {
        return fail_impossible(host);
    }
    DL_TRY(start_job(host, port, &job));
    pthread_mutex_lock(&job->lock);
    dl_status status = await_job(job, deadline);
    if (status == DL_OK) {
        status = take_result(host, &job->result, addresses, count);
    }
    leave_job(job);
    return status;
}
