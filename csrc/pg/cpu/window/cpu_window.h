/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU backend's part of a window (pg/window_part.h).  Its memory is a region of the
 * arena, which the ranks of the host map, so that each of them carries out its accesses
 * itself.  Ranks on other hosts send requests, which a thread of the owner carries out
 * (pg/cpu/window/window_server.h). */
#ifndef DISTLITE_PG_CPU_WINDOW_CPU_WINDOW_H
#define DISTLITE_PG_CPU_WINDOW_CPU_WINDOW_H

#include "pg/cpu/layout.h"
#include "pg/cpu/bootstrap.h"
#include "pg/cpu/window/window_server.h"
#include "pg/window_part.h"

/* The group of a window.  The part copies what it needs, and takes references to the
 * bootstrap and to the server. */
typedef struct dl_cpu_window_group {
    dl_window_server *server;
    dl_bootstrap
        *bootstrap; /* NULL in a group of one rank, and all that follows is empty */
    const dl_layout *layout;
    dl_peers peers;
    dl_processes processes;       /* by rank; the bootstrap's */
    dl_tcp_contacts tcp_contacts; /* for ranks on other hosts */
    bool may_spin;
} dl_cpu_window_group;

/* Makes this rank's part, without communicating. */
dl_status dl_cpu_window_new(const dl_cpu_window_group *group,
                            const dl_window_options *options, dl_window_part **part);

#endif
