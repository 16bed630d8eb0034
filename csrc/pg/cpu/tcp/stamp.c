/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/stamp.h"

#include <inttypes.h>
#include <stdio.h>

/* The tag has the kind of operation in its low byte and the stage above it. */
#define STAGE_SHIFT 8
#define STAGE_MASK 0xffffffffu

dl_head
dl_stamp_head(const dl_op_context *op, uint32_t stage)
{
    const dl_fingerprint *fingerprint = &op->fingerprint;

    return (dl_head){
        .kind = DL_HEAD_DATA,
        .dtype = fingerprint->dtype,
        .root = fingerprint->root,
        .code = fingerprint->detail,
        .id = op->sequence,
        .tag = (int64_t)((uint64_t)stage << STAGE_SHIFT | fingerprint->op),
        .total = dl_fingerprint_count(fingerprint),
    };
}

/* Returns the other rank's call as its head describes it.  The head is not
 * validated. */
static dl_fingerprint
fingerprint_of(const dl_head *head)
{
    dl_fingerprint theirs = {
        .op = (uint8_t)head->tag,
        .dtype = head->dtype,
        .root = head->root,
        .detail = head->code,
    };

    dl_fingerprint_set_count(&theirs, head->total);
    return theirs;
}

dl_status
dl_stamp_fail_protocol(const dl_link_options *link)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peer_describe(link->there, link->peer, peer);
    return dl_fail(DL_PROTOCOL,
                   "%s sent what makes no sense here: the ranks run different versions "
                   "of distlite",
                   peer);
}

/* Names the lower rank first, so that the texts are the same on both sides. */
static dl_status
fail_calls(const dl_link_options *link, const dl_op_context *op, const dl_head *head)
{
    dl_fingerprint theirs = fingerprint_of(head);
    bool is_first = link->rank < link->peer;
    const dl_fingerprint *calls[] = {is_first ? &op->fingerprint : &theirs,
                                     is_first ? &theirs : &op->fingerprint};
    int ranks[] = {is_first ? link->rank : link->peer,
                   is_first ? link->peer : link->rank};
    char texts[2][DL_FINGERPRINT_TEXT_SIZE];

    for (int i = 0; i < 2; i++) {
        dl_fingerprint_describe(calls[i], texts[i], sizeof texts[i]);
    }
    if (head->id != op->sequence) {
        return dl_fail(DL_MISMATCH,
                       "rank %d is in its call #%" PRIu64
                       ", which is %s, rank %d in #%" PRIu64 ", %s",
                       ranks[0], is_first ? op->sequence : head->id, texts[0], ranks[1],
                       is_first ? head->id : op->sequence, texts[1]);
    }
    return dl_fail(DL_MISMATCH, "rank %d called %s, rank %d called %s", ranks[0],
                   texts[0], ranks[1], texts[1]);
}

static dl_status
fail_sizes(const dl_link_options *link, const dl_op_context *op, const dl_cargo *cargo,
           const dl_head *head)
{
    char sent[DL_FINGERPRINT_SIZE_TEXT_SIZE];
    char expected[DL_FINGERPRINT_SIZE_TEXT_SIZE];

    dl_fingerprint_describe_size(&op->fingerprint, head->length, sent);
    dl_fingerprint_describe_size(&op->fingerprint, cargo->size, expected);
    return dl_fail(DL_MISMATCH, "rank %d has %s for rank %d, which expects %s",
                   link->peer, sent, link->rank, expected);
}

dl_status
dl_stamp_compare(const dl_link_options *link, const dl_op_context *op,
                 const dl_cargo *cargo, const dl_head *head)
{
    dl_fingerprint theirs = fingerprint_of(head);

    if (head->id != op->sequence || !dl_fingerprint_equal(&theirs, &op->fingerprint)) {
        return fail_calls(link, op, head);
    }
    if (head->length != cargo->size) {
        return fail_sizes(link, op, cargo, head);
    }
    uint64_t stage = (uint64_t)head->tag >> STAGE_SHIFT;
    return (stage & STAGE_MASK) == cargo->stage ? DL_OK : dl_stamp_fail_protocol(link);
}
