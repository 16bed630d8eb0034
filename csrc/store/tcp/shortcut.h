/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The shortcut between a store's server and the clients of its host: a Unix socket,
 * which costs both sides less processor time than TCP does over loopback.  The protocol
 * is the same from the first byte on, with the same proof of the token and the same
 * TLS.
 *
 *     client                                server
 *     TCP: handshake, requests          ->  one more client
 *     TCP: what is the shortcut?        ->  its name, 16 random bytes
 *     Unix socket: the same handshake   ->  one more client
 *     closes the TCP connection
 *
 * The name cannot direct a client to another process: the client accepts only a process
 * of its own user, according to the kernel, that has the identity of the server it has
 * joined.  The server accepts only clients of its own user.  An abstract name is known
 * within one network namespace, so a client elsewhere finds no such socket and stays
 * with TCP, as does every client for which any other check fails.
 *
 * This file serves both sides; connection_pool.c decides when a client moves to the
 * shortcut. */
#ifndef DISTLITE_STORE_TCP_SHORTCUT_H
#define DISTLITE_STORE_TCP_SHORTCUT_H

#include "store/tcp/connection.h"

/* Reads whether DISTLITE_STORE_UNIX allows shortcuts.  DL_INVALID: it is neither 0 nor
 * 1. */
dl_status dl_shortcut_is_allowed(bool *is_allowed);

/* Makes the Unix socket of a server whose TCP listener is `listener`.  Returns the
 * descriptor, which the caller owns, or -1 if there can be none: `shortcut` is then
 * empty, and clients stay with TCP. */
int dl_shortcut_open(int listener, dl_shortcut *shortcut);

/* Asks the server at the other end of a clean connection.  `shortcut` is empty if the
 * server has none, or if the name is not that of a shortcut.  After a failure replies
 * may be outstanding (is_clean). */
dl_status dl_shortcut_ask(dl_connection *connection, dl_deadline deadline,
                          dl_shortcut *shortcut);

/* The same over a clean TCP connection to `port`, if the server is on this host.
 * DL_NOT_FOUND: there is no shortcut for this client, for example because the server is
 * on another host or behind a relay. */
dl_status dl_shortcut_find(dl_connection *connection, uint16_t port,
                           dl_deadline deadline, dl_shortcut *shortcut);

#endif
