/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is wrong with a call as far as one rank can see: devices, sizes, dtypes, shared
 * memory, roots.  What is right becomes its fingerprint, for the other ranks to see. */
#ifndef DISTLITE_PG_CHECK_H
#define DISTLITE_PG_CHECK_H

#include "pg/arguments.h"
#include "pg/fingerprint.h"
#include "pg/group.h"

/* `args` is the struct of fingerprint->op, which becomes that of the uneven form where
 * blocks differ in size.  DL_INVALID or DL_UNSUPPORTED: nothing has been sent. */
typedef dl_status (*dl_check_fn)(const dl_group *group, const void *args,
                                 dl_fingerprint *fingerprint);

/* A tensor on every rank. */
dl_status dl_check_all_reduce(const dl_group *group, const void *args,
                              dl_fingerprint *fingerprint);
dl_status dl_check_broadcast(const dl_group *group, const void *args,
                             dl_fingerprint *fingerprint);
dl_status dl_check_reduce(const dl_group *group, const void *args,
                          dl_fingerprint *fingerprint);

/* Lists of blocks, one for each rank. */
dl_status dl_check_all_gather(const dl_group *group, const void *args,
                              dl_fingerprint *fingerprint);
dl_status dl_check_gather(const dl_group *group, const void *args,
                          dl_fingerprint *fingerprint);
dl_status dl_check_scatter(const dl_group *group, const void *args,
                           dl_fingerprint *fingerprint);
dl_status dl_check_reduce_scatter(const dl_group *group, const void *args,
                                  dl_fingerprint *fingerprint);
dl_status dl_check_all_to_all(const dl_group *group, const void *args,
                              dl_fingerprint *fingerprint);

/* Blocks of the library's own. */
dl_status dl_check_objects(const dl_group *group, const void *args,
                           dl_fingerprint *fingerprint);

/* What the families share. */
dl_status dl_check_tensor(const dl_group *group, const dl_tensor *tensor,
                          bool is_written, const dl_fingerprint *fingerprint);
dl_status dl_check_root(const dl_group *group, int root, dl_fingerprint *fingerprint);
void dl_check_describe(const dl_tensor *tensor, dl_fingerprint *fingerprint);

/* The same of a tensor that is reduced. */
dl_status dl_check_reduction(const dl_tensor *tensor, dl_reduce_op op,
                             dl_fingerprint *fingerprint);

#endif
