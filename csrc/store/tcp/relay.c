/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/relay_state.h"

static dl_deadline
end_turn(void *context)
{
    dl_relay *relay = context;
    dl_list touched;

    if (relay->is_lost) {
        dl_relay_end_connection(relay);
    }
    dl_list_init(&touched);
    dl_list_move(&relay->touched, &touched);
    while (!dl_list_is_empty(&touched)) {
        dl_relay_channel *one = DL_LIST_ENTRY(touched.next, dl_relay_channel, touched);
        dl_list_remove(&one->touched);
        dl_relay_serve(one);
    }
    dl_relay_send_frames(relay);
    return relay->is_lost || !dl_list_is_empty(&relay->touched) ? (dl_deadline){0}
                                                                : dl_deadline_after(-1);
}

static void *
run_relay(void *argument)
{
    dl_relay *relay = argument;

    DL_RELAY_LOOP->run(relay->loop, end_turn, relay);
    return NULL;
}

static void
free_relay(dl_relay *relay)
{
    while (!dl_list_is_empty(&relay->clients)) {
        dl_relay_drop(DL_LIST_ENTRY(relay->clients.next, dl_relay_channel, node));
    }
    if (relay->connection != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->server);
    }
    if (relay->listener.ready != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->listener);
    }
    if (relay->wake.ready != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->wake);
    }
    dl_relay_link_stop(&relay->link);
    if (relay->loop != NULL) {
        DL_RELAY_LOOP->close(relay->loop);
    }
    dl_socket_close(relay->listener.fd);
    dl_map_fini(&relay->channels);
    dl_relay_waits_fini(&relay->waits);
    dl_buffer_fini(&relay->out);
    free(relay);
}

static dl_status
listen_by_name(dl_relay *relay, const char *name)
{
    if (name == NULL) {
        return dl_local_service_listen(relay->name, &relay->listener.fd);
    }
    if (!dl_local_service_is_name(dl_bytes_of(name))) {
        return dl_fail(DL_INVALID,
                       "the name of a store's relay must be that of an "
                       "earlier one, \"distlite-\" and 32 hexadecimal digits");
    }
    memcpy(relay->name, name, DL_LOCAL_NAME_SIZE);
    return dl_local_service_listen_at(name, &relay->listener.fd);
}

static dl_status
watch_descriptor(dl_relay *relay, dl_watch *one, void (*ready)(dl_watch *, uint32_t))
{
    one->events = DL_LOOP_READABLE;
    one->ready = ready;
    dl_status status = DL_RELAY_LOOP->add(relay->loop, one);
    if (status != DL_OK) {
        one->ready = NULL;
    }
    return status;
}

static dl_status
start(dl_relay *relay, const dl_relay_options *options)
{
    DL_TRY(listen_by_name(relay, options->name));
    DL_TRY(DL_RELAY_LOOP->open(&relay->loop));
    DL_TRY(watch_descriptor(relay, &relay->listener, dl_relay_accept));
    DL_TRY(dl_relay_link_start(&relay->link, options->host, options->port,
                               options->secret, options->tls));
    relay->wake.fd = relay->link.wake_fd;
    DL_TRY(watch_descriptor(relay, &relay->wake, dl_relay_take_connection));
    return dl_thread_start(&relay->thread, run_relay, relay);
}

dl_status
dl_relay_start(const dl_relay_options *options, dl_relay **started)
{
    dl_relay *relay = calloc(1, sizeof *relay);

    if (relay == NULL) {
        return dl_fail_no_memory();
    }
    relay->fork_generation = dl_fork_generation();
    relay->listener.fd = -1;
    dl_list_init(&relay->clients);
    dl_list_init(&relay->touched);
    relay->waits.out = &relay->out;
    relay->waits.reply = dl_relay_give_reply;
    dl_status status = start(relay, options);
    if (status != DL_OK) {
        free_relay(relay);
        return status;
    }
    *started = relay;
    return DL_OK;
}

void
dl_relay_stop(dl_relay *relay)
{
    if (relay->fork_generation != dl_fork_generation()) {
        return;
    }
    DL_RELAY_LOOP->stop(relay->loop);
    pthread_join(relay->thread, NULL);
    free_relay(relay);
}

const char *
dl_relay_name(const dl_relay *relay)
{
    return relay->name;
}

bool
dl_relay_is_connected(const dl_relay *relay)
{
    return atomic_load(&relay->is_connected);
}
