/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/operation_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pg/fingerprint.h"

dl_operation_text
dl_operation_describe(uint8_t op, uint64_t sequence, const char *group)
{
    dl_operation_text made;

    snprintf(made.text, sizeof made.text, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(op), sequence, group);
    return made;
}

dl_last_seen
dl_operation_last_seen(uint64_t seen, const char *never)
{
    dl_last_seen made;

    if (seen == 0) {
        snprintf(made.text, sizeof made.text, "%s", never);
    } else {
        snprintf(made.text, sizeof made.text, " (last seen in #%" PRIu64 ")", seen);
    }
    return made;
}

dl_status
dl_operation_fail(const char *operation, const char *suffix)
{
    dl_error error = *dl_last_error();

    if (strstr(error.text, strstr(operation, " in group ")) != NULL) {
        return error.status;
    }
    return dl_fail(error.status, "%s: %.*s%s", operation,
                   DL_ERROR_TEXT_SIZE - DL_OPERATION_TEXT_SIZE - DL_LAST_SEEN_SIZE - 8,
                   error.text, suffix);
}

dl_error
dl_operation_error_for_others(const dl_error *error, const char *operation)
{
    dl_error message = *error;

    if (error->status == DL_INTERRUPTED) {
        message.status = DL_CANCELLED;
        snprintf(message.text, sizeof message.text, "%s was interrupted", operation);
    }
    return message;
}
