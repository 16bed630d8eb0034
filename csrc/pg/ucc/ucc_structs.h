/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC's structs under our own names, unchanged from 1.0 on.  Members that were added
 * later are read by UCC only if their bit in a mask is set, and no such bit is ever set
 * here.  Members that are not used stay zero. */
#ifndef DISTLITE_PG_UCC_UCC_STRUCTS_H
#define DISTLITE_PG_UCC_UCC_STRUCTS_H

#include <stddef.h>
#include <stdint.h>

/* The exchange of bytes before UCC's network is up.  The functions return 0 when done,
 * 1 while in progress, and a negative number on failure. */
typedef struct dl_ucc_oob {
    int (*all_gather)(void *send, void *receive, size_t bytes, void *user,
                      void **request);
    int (*test)(void *request);
    int (*free)(void *request);
    void *user;
    uint32_t size;
    uint32_t rank;
} dl_ucc_oob;

typedef struct dl_ucc_lib_params {
    uint64_t mask;
    int thread_mode;
    uint64_t collectives, reductions;
    int sync_type;
} dl_ucc_lib_params;

typedef struct dl_ucc_context_params {
    uint64_t mask;
    int type, sync_type;
    dl_ucc_oob oob;
    uint64_t id;
    void *segments;
    uint64_t segment_count;
} dl_ucc_context_params;

typedef struct dl_ucc_team_params {
    uint64_t mask, flags;
    int ordering;
    uint64_t outstanding;
    uint64_t ep;
    void *ep_list;
    int ep_range;
    uint64_t size;
    int sync_type;
    dl_ucc_oob oob;
    void *p2p[5];
    void *segments;
    uint64_t segment_count;
    uint64_t ep_map[4];
    uint64_t id;
} dl_ucc_team_params;

typedef struct dl_ucc_block {
    void *data;
    uint64_t count, dtype;
    int memory; /* DL_UCC_HOST or DL_UCC_CUDA */
} dl_ucc_block;

typedef struct dl_ucc_blocks {
    void *data;
    uint64_t *counts, *displacements, dtype;
    int memory;
} dl_ucc_blocks;

typedef union dl_ucc_side {
    dl_ucc_block one;
    dl_ucc_blocks many;
} dl_ucc_side;

typedef struct dl_ucc_args {
    uint64_t mask;
    int collective;
    dl_ucc_side source, target;
    int op;
    uint64_t flags, root;
    int error_type;
    uint16_t tag;
    void *work_buffer;
    void *callback[2];
    double timeout;
    uint64_t set_start;
    int64_t set_stride;
    uint64_t set_size;
    void *handles[2];
} dl_ucc_args;

_Static_assert(sizeof(dl_ucc_oob) == 40, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_lib_params) == 40, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_context_params) == 80, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_team_params) == 208, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_args) == 200, "fixed by UCC 1.5, whose end is new");

/* An operation.  Only the status of what the pointer leads to may be read. */
typedef struct dl_ucc_request {
    int status;
} dl_ucc_request;

#endif
