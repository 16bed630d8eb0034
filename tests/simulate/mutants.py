# SPDX-License-Identifier: BSD-3-Clause
"""Planted faults, each of which the simulator has to find.

    mutants.py [--seeds N] [NAME ...]

A mutant is a text of the core's source and what takes its place.  The changed file is
compiled apart and linked in front of the core; the tree stays as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from c_build import ROOT, Builder
from simulate_build import simulator

SEEDS = 10000


@dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    stage: str = "store"
    seed: int = 0  # the first that found it, when all were hunted last


MUTANTS = {
    "a repeated change is executed again": Mutant(
        "store/tcp/answer.c",
        "if (sequence == slot->sequence && dl_replies_has_reply(slot)) {",
        "if (sequence + 1 == 0 && dl_replies_has_reply(slot)) {",
        seed=66,
    ),
    "the reply to a wait is not sent": Mutant(
        "store/tcp/answer.c",
        "    dl_hub_mark(session->hub, &session->client);\n"
        "}\n\nvoid\ndl_answer_end_waits",
        "}\n\nvoid\ndl_answer_end_waits",
        seed=4,
    ),
    "slots are not in the journal": Mutant(
        "store/tcp/answer.c",
        "    (void)dl_replies_record(&session->hub->replies, slot);\n"
        "    return status;",
        "    return status;",
        seed=171,
    ),
    "the disk is not waited for": Mutant(
        "store/tcp/journal.c",
        "if (fdatasync(journal->fd) != 0) {",
        "if (journal->fd < 0) {",
        seed=87,
    ),
    "a reply does not wait for the sync": Mutant(
        "store/tcp/journal.c",
        "return journal->sync == DL_JOURNAL_ALWAYS ? sync_file(journal) : DL_OK;",
        "return DL_OK;",
        seed=87,
    ),
    "the interval never ends": Mutant(
        "store/tcp/journal.c",
        "? journal->unsynced_since + SYNC_INTERVAL",
        "? INT64_MAX",
        seed=186,
    ),
    "the file's name is not synced": Mutant(
        "store/tcp/journal_recovery.c",
        "    return sync_name(path);",
        "    return DL_OK;",
        seed=18,
    ),
    "a server that is restarted has a new identity": Mutant(
        "store/tcp/journal_recovery.c",
        "    memcpy(state->identity, contents.identity, DL_JOURNAL_IDENTITY_SIZE);\n",
        "",
        seed=12,
    ),
    "a change that was sent is taken for one that was not": Mutant(
        "store/tcp/connection.c",
        "connection->may_be_done = true;",
        "connection->may_be_done = false;",
        seed=66,
    ),
    "a short write is taken for a whole one": Mutant(
        "net/socket.c",
        "        parts[done].iov_len -= size;\n    }\n    return done;",
        "        done++;\n    }\n    return done;",
        seed=0,
    ),
    "a lost connection leaves its descriptor": Mutant(
        "store/tcp/connection.c",
        "        dl_socket_close(connection->fd);\n    }\n    dl_buffer_fini",
        "    }\n    dl_buffer_fini",
        seed=0,
    ),
    "a connection leaves its buffer": Mutant(
        "store/tcp/connection.c",
        "    dl_buffer_fini(&connection->out);\n    free(connection);",
        "    free(connection);",
        seed=0,
    ),
    "a torn end is not cut off": Mutant(
        "store/tcp/journal_recovery.c",
        "        *size = contents.size;\n",
        "",
        seed=222,
    ),
    "what a killed server wrote is not synced": Mutant(
        "store/tcp/journal_recovery.c",
        "if (fdatasync(*fd) != 0) {",
        "if (contents.size == 0 && fdatasync(*fd) != 0) {",
        seed=6552,
    ),
    "a repeated change has a new slot": Mutant(
        "store/tcp/tcp_call.c",
        "call->may_be_done ? &call->slot : NULL, NULL,\n"
        "                                   open_by, &opened));\n"
        "    if (call->may_be_done && ",
        "call->is_legacy ? &call->slot : NULL, NULL,\n"
        "                                   open_by, &opened));\n"
        "    if (call->is_legacy && ",
        seed=66,
    ),
    "a key that comes wakes nobody": Mutant(
        "store/table_waiters.c",
        "        if (is_met(waiter_of(node)->kind, entry)) {",
        "        if (entry->value == NULL && is_met(waiter_of(node)->kind, entry)) {",
        seed=4,
    ),
    "a barrier ends one rank early": Mutant(
        "store/table_waiters.c",
        "->world_size <= arrived) {",
        "->world_size <= arrived + 1) {",
        seed=1,
    ),
    "who repeats a barrier is counted again": Mutant(
        "store/tcp/answer.c",
        "return wait_barrier(session, request, true);",
        "return wait_barrier(session, request, false);",
        seed=66,
    ),
    "the last item of a queue is the first": Mutant(
        "store/table.c",
        "dl_list_append(is_first ? items->next : items, &item->node);",
        "dl_list_append(items->next, &item->node);",
        seed=0,
    ),
    "a pop is not in the journal": Mutant(
        "store/table.c",
        "    record_change(table, (dl_change){\n"
        "                             .kind = DL_CHANGE_POP,",
        "    (void)((dl_change){\n                             .kind = DL_CHANGE_POP,",
        seed=19,
    ),
    "a deleted key comes back": Mutant(
        "store/table.c",
        "    record_change(table, (dl_change){.kind = DL_CHANGE_DELETE, "
        ".key = key});\n",
        "",
        seed=87,
    ),
    "a slot from before a crash is refused": Mutant(
        "store/tcp/replies.c",
        "    if (slot != NULL && slot->session == NULL && named->sequence - 1 > ",
        "    if (slot != NULL && slot->session != NULL && named->sequence - 1 > ",
        seed=210,
    ),
    "a wait that is woken is not answered": Mutant(
        "store/tcp/answer.c",
        "end_barrier(session) == DL_OK)) {\n        reply_ready(session);",
        "end_barrier(session) == DL_OK)) {",
        seed=0,
    ),
    "a frame that ends behind the file is read": Mutant(
        "store/journal_format.c",
        "    if (size > left - DL_JOURNAL_FRAME_HEAD) {",
        "    if (size > left) {",
        seed=8601,
    ),
    "a new journal has no slots": Mutant(
        "store/tcp/journal_replacement.c",
        "dl_replies_put(&copy->frame, DL_MAP_ENTRY(node, dl_reply_slot, node), true);",
        "",
        seed=412,
    ),
    "the name of a new journal is not synced": Mutant(
        "store/tcp/journal_replacement.c",
        "    dl_journal_file_sync_folder(folder);\n",
        "    dl_journal_file_sync_folder(-1);\n",
        seed=393,
    ),
    "the checksum of a frame is not compared": Mutant(
        "store/journal_format.c",
        "return dl_crc32c(checksum, *records) == get_u32(head + 8) ? FRAME_VALID",
        "return dl_crc32c(checksum, *records) != 0 ? FRAME_VALID",
        "damage",
        seed=0,
    ),
    "of a damaged journal no copy is kept": Mutant(
        "store/tcp/journal_recovery.c",
        "    if (contents->has_hole) {",
        "    if (contents->has_hole && size == 0) {",
        "damage",
        seed=0,
    ),
    "a rank leaves out one of its children": Mutant(
        "pg/cpu/gather.c",
        "child <= 2 * (int64_t)rank + 2;",
        "child < 2 * (int64_t)rank + 2;",
        "join",
        seed=0,
    ),
    "a leader greets the wrong side": Mutant(
        "pg/cpu/bootstrap.c",
        "leader_at(layout, -distance),\n                                 &self",
        "leader_at(layout, distance),\n                                 &self",
        "join",
        seed=0,
    ),
    "a listener is left": Mutant(
        "pg/cpu/endpoint.c",
        "    dl_endpoint_close_calls(endpoint);\n    dl_tls_unref",
        "    dl_tls_unref",
        "join",
        seed=0,
    ),
    "probes leave their memory": Mutant(
        "pg/cpu/health/probes.c",
        "    free(probes->entries);\n    pthread_mutex",
        "    pthread_mutex",
        "collectives",
        seed=1,
    ),
    "the thread that watches calls does not end": Mutant(
        "pg/cpu/health/process_table.c",
        "        idle = drop_watch_locked();\n    }\n    source->is_watched",
        "        idle = NULL;\n    }\n    source->is_watched",
        "join",
        seed=0,
    ),
    "the wait for records has no end": Mutant(
        "pg/cpu/join_fault.c",
        "if (status != DL_TIMEOUT || dl_deadline_passed(deadline)) {",
        "if (status != DL_TIMEOUT) {",
        "join",
        seed=3,
    ),
    "leaders do not compare their records": Mutant(
        "pg/cpu/bootstrap.c",
        "        DL_TRY(dl_endpoint_compare(endpoint, &self->theirs[round++]));",
        "        round++;",
        "join",
        seed=4045,
    ),
    "who lost a rank does not read whom that waited for": Mutant(
        "pg/cpu/join_fault.c",
        "    dl_bytes late = late_key(rank, key);",
        "    dl_bytes late = late_key(-1, key);",
        "join",
        seed=1877,
    ),
    "a leader does not share its table with the next rank": Mutant(
        "pg/cpu/endpoint_gather.c",
        "    for (int i = 1; i < count; i++) {",
        "    for (int i = 2; i < count; i++) {",
        "join",
        seed=0,
    ),
    "a leader's refusal does not name it": Mutant(
        "pg/cpu/shm/join.c",
        "    if (is_own(cause.status)) {",
        "    if (is_own(cause.status) && cause.status == DL_INTERRUPTED) {",
        "join",
        seed=94,
    ),
    "a table stays mapped": Mutant(
        "pg/cpu/contacts.c",
        "    dl_segment_fini(&contacts->shared);\n    *contacts",
        "    *contacts",
        "join",
        seed=0,
    ),
    "a member leaves the table's descriptor": Mutant(
        "pg/cpu/endpoint_gather.c",
        "            dl_socket_close(file);\n            return status;",
        "            return status;",
        "join",
        seed=0,
    ),
    "a rank that was not reached is not listed": Mutant(
        "pg/cpu/reach.c",
        "            self->ranks[(*count)++] = rank;",
        "            self->ranks[*count] = rank;",
        "join",
        seed=244,
    ),
    "an operation does not wait for why the one before it has timed out": Mutant(
        "pg/lane.c",
        "#define LAST_WORDS (600 * DL_MILLISECOND)",
        "#define LAST_WORDS 0",
        "collectives",
        seed=16818,
    ),
    "a fence does not wait for what was written to other hosts": Mutant(
        "pg/cpu/window/window_client.c",
        "if (has_lock != NULL || client->is_dirty) {",
        "if (has_lock != NULL) {",
        "collectives",
        seed=26,
    ),
    "two ranks have the lock of a window": Mutant(
        "pg/cpu/window/window_lock.c",
        "return left->mode == DL_QUEUE_EXCLUSIVE || right->mode == DL_QUEUE_EXCLUSIVE;",
        "return left->mode == right->mode && right->mode == DL_QUEUE_SHARED;",
        "collectives",
        seed=26,
    ),
    "a rank deletes its last call before all have read it": Mutant(
        "pg/agree/agreement.c",
        "dl_roll_call_delete(&self->roll, op->sequence - 2);",
        "dl_roll_call_delete(&self->roll, op->sequence - 1);",
        "collectives",
        seed=15,
    ),
    "two groups share an area": Mutant(
        "pg/cpu/shm/arena.c",
        "vacant->offset = atomic_fetch_add(&directory->end, arena->area);",
        "vacant->offset = atomic_load(&directory->end) - arena->area;",
        "collectives",
        seed=77,
    ),
    "who has left is lost before the call has come": Mutant(
        "pg/cpu/tcp/link.c",
        "#define CALL_PATIENCE (500 * DL_MILLISECOND)",
        "#define CALL_PATIENCE 0",
        "collectives",
        seed=1053,
    ),
    "a round of collecting leaves out a block": Mutant(
        "pg/cpu/hosts/ring.c",
        "    return left < distance ? left : distance;",
        "    return left < distance ? left : distance - (distance > 1);",
        "collectives",
        seed=13,
    ),
    "a failure is not passed on to other hosts": Mutant(
        "pg/cpu/health/notices.c",
        "        send_own(notices, head, message, deadline);\n    }\n}",
        "        (void)deadline;\n    }\n}",
        "collectives",
        seed=8005,
    ),
    "a rank that leaves does not wait for what it has sent": Mutant(
        "pg/cpu/tcp/traffic.c",
        "if (route->heard < route->told) {",
        "if (route->heard > route->told) {",
        "collectives",
        seed=187,
    ),
    "a notice behind what was expected ends the operation": Mutant(
        "pg/cpu/tcp/route.c",
        "if (self->in_left == 0 && !is_idle(self)) {",
        "if (self->in_left == 0) {",
        "collectives",
        seed=1,
    ),
}


def changed_text(name: str) -> str:
    """Returns the file of a mutant with the fault."""
    mutant = MUTANTS[name]
    text = (ROOT / "csrc" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file} has no such text any more: {name}")
    return text.replace(mutant.old, mutant.new)


def build(builder: Builder, name: str) -> Path:
    """Returns the simulator with the mutant in place of its file."""
    number = list(MUTANTS).index(name)
    source = builder.folder / "mutants" / f"mutant_{number}.c"
    source.parent.mkdir(parents=True, exist_ok=True)
    changed = changed_text(name)
    if not source.exists() or source.read_text() != changed:
        source.write_text(changed)
    return simulator(builder, changed=source)


def hunt(program: Path, mutant: Mutant, seeds: int) -> str | None:
    """Returns the seed that found the mutant last, if it still does, or the first one
    that fails."""
    for first, last in ((mutant.seed, mutant.seed + 1), (0, seeds)):
        command = [program, "--hunt", mutant.stage, str(first), str(last)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 1:
            return done.stdout.split()[0]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    builder = Builder()
    missed = 0
    for name in arguments.names or MUTANTS:
        program = build(builder, name)
        seed = hunt(program, MUTANTS[name], arguments.seeds)
        missed += seed is None
        print(f"{name}: {'not found' if seed is None else f'seed {seed}'}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
