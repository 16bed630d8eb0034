/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/openssl.h"
#include "base/references.h"

#define TOKEN_VARIABLE "DISTLITE_TOKEN"
#define FILE_VARIABLE "DISTLITE_TOKEN_FILE"

struct dl_secret {
    atomic_uint references;
    /* fixed after init */
    bool is_named; /* by the environment */
    size_t size;
    uint8_t token[];
};

dl_status
dl_secret_new(dl_bytes token, dl_secret **secret)
{
    if (token.size == 0) {
        return dl_fail(DL_INVALID, "the job's token is empty");
    }
    if (token.size > DL_TOKEN_LIMIT) {
        return dl_fail(DL_INVALID, "the job's token has %zu bytes, the limit is %u",
                       token.size, DL_TOKEN_LIMIT);
    }
    DL_TRY(dl_openssl_load());
    dl_secret *made = malloc(sizeof *made + token.size);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&made->references, 1);
    made->is_named = false;
    made->size = token.size;
    memcpy(made->token, token.data, token.size);
    *secret = made;
    return DL_OK;
}

/* The rule of PostgreSQL's clients for private keys: a file that root owns may be
 * readable by its group, because administrators and orchestrators share keys that
 * way. */
static dl_status
check_file(const struct stat *file, const char *path)
{
    mode_t forbidden =
        file->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;

    if (!S_ISREG(file->st_mode)) {
        return dl_fail(DL_INVALID, FILE_VARIABLE "=%.500s is not a regular file", path);
    }
    if (file->st_uid != geteuid() && file->st_uid != 0) {
        return dl_fail(DL_INVALID,
                       FILE_VARIABLE "=%.500s belongs to another user, who may know or "
                                     "change the token",
                       path);
    }
    if ((file->st_mode & forbidden) != 0) {
        return dl_fail(DL_INVALID,
                       FILE_VARIABLE "=%.500s is open to other users (mode %04o): "
                                     "chmod 600 %.500s, and use a new token if others "
                                     "may have read it",
                       path, (unsigned)(file->st_mode & 07777), path);
    }
    return DL_OK;
}

static dl_status
fail_read(const char *path)
{
    return dl_fail(DL_INVALID, FILE_VARIABLE "=%.500s cannot be read: %s", path,
                   strerror(errno));
}

/* Reads up to `room` bytes, which is one more than a token may have, so that a longer
 * file is refused and not cut off. */
static dl_status
read_file(int fd, const char *path, uint8_t *token, size_t room, size_t *size)
{
    struct stat file;

    if (fstat(fd, &file) != 0) {
        return fail_read(path);
    }
    DL_TRY(check_file(&file, path));
    *size = 0;
    while (*size < room) {
        ssize_t got = read(fd, token + *size, room - *size);
        if (got < 0 && errno != EINTR) {
            return fail_read(path);
        }
        if (got == 0) {
            break;
        }
        *size += got > 0 ? (size_t)got : 0;
    }
    if (*size > 0 && token[*size - 1] == '\n') {
        --*size;
        *size -= *size > 0 && token[*size - 1] == '\r';
    }
    return *size > 0
               ? DL_OK
               : dl_fail(DL_INVALID, FILE_VARIABLE "=%.500s: the file is empty", path);
}

static dl_status
find_in_file(const char *path, dl_secret **secret)
{
    uint8_t token[DL_TOKEN_LIMIT + 3]; /* with its newline, and one byte too many */
    size_t size = 0;
    /* O_NONBLOCK: opening a pipe by mistake must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0) {
        return fail_read(path);
    }
    dl_status status = read_file(fd, path, token, sizeof token, &size);
    close(fd);
    if (status == DL_OK) {
        status = dl_secret_new((dl_bytes){token, size}, secret);
    }
    explicit_bzero(token, sizeof token);
    return status;
}

bool
dl_secret_is_named(void)
{
    return getenv(TOKEN_VARIABLE) != NULL || getenv(FILE_VARIABLE) != NULL;
}

dl_status
dl_secret_find(dl_secret **secret)
{
    const char *token = getenv(TOKEN_VARIABLE);
    const char *path = getenv(FILE_VARIABLE);

    if (token != NULL && path != NULL) {
        return dl_fail(DL_INVALID, TOKEN_VARIABLE " and " FILE_VARIABLE
                                                  " are both set; unset one of them");
    }
    /* Not treated as unset: the variable shows that a secret is wanted, and a script
     * that failed to fill it in must not run the job without one. */
    if ((token != NULL && *token == '\0') || (path != NULL && *path == '\0')) {
        return dl_fail(DL_INVALID, "%s is empty; unset it for a job without a token",
                       token != NULL ? TOKEN_VARIABLE : FILE_VARIABLE);
    }
    *secret = NULL;
    if (token != NULL) {
        DL_TRY(dl_secret_new(dl_bytes_of(token), secret));
    } else if (path != NULL) {
        DL_TRY(find_in_file(path, secret));
    }
    if (*secret != NULL) {
        (*secret)->is_named = true;
    }
    return DL_OK;
}

dl_secret *
dl_secret_ref(dl_secret *secret)
{
    if (secret != NULL) {
        dl_reference_take(&secret->references);
    }
    return secret;
}

void
dl_secret_unref(dl_secret *secret)
{
    if (secret != NULL && dl_reference_drop(&secret->references)) {
        /* Not memset(3), which compilers omit for memory that is freed next. */
        explicit_bzero(secret->token, secret->size);
        free(secret);
    }
}

dl_bytes
dl_secret_own_token(const dl_secret *secret)
{
    return secret == NULL || secret->is_named ? (dl_bytes){0}
                                              : (dl_bytes){secret->token, secret->size};
}

dl_status
dl_secret_mac(const dl_secret *secret, dl_bytes message, uint8_t mac[DL_MAC_SIZE])
{
    unsigned int size = 0;

    if (dl_openssl.hmac(dl_openssl.sha256(), secret->token, (int)secret->size,
                        message.data, message.size, mac, &size)
            == NULL
        || size != DL_MAC_SIZE) {
        return dl_fail(DL_INTERNAL, "libcrypto failed to compute an HMAC-SHA256");
    }
    return DL_OK;
}

bool
dl_secret_mac_equal(const uint8_t left[DL_MAC_SIZE], const uint8_t right[DL_MAC_SIZE])
{
    return dl_openssl.compare(left, right, DL_MAC_SIZE) == 0;
}

dl_status
dl_random(uint8_t *bytes, size_t size)
{
    ssize_t got;

    /* A request for up to 256 bytes is never fulfilled in part. */
    do {
        got = getrandom(bytes, size, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)size
               ? DL_OK
               : dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
}
