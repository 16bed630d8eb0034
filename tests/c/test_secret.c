/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/secret.h"

#include <sys/stat.h>

#include "check.h"

static dl_secret *
secret_of(dl_bytes token)
{
    dl_secret *secret = NULL;

    CHECK_OK(dl_secret_new(token, &secret));
    return secret;
}

static void
check_mac(dl_bytes token, dl_bytes message, const char *expected)
{
    dl_secret *secret = secret_of(token);
    uint8_t mac[DL_MAC_SIZE];
    char text[2 * DL_MAC_SIZE + 1];

    CHECK_OK(dl_secret_mac(secret, message, mac));
    for (size_t i = 0; i < sizeof mac; i++) {
        snprintf(text + 2 * i, 3, "%02x", mac[i]);
    }
    CHECK_TEXT(text, expected);
    dl_secret_unref(secret);
}

/* The second and the sixth case of RFC 4231: a short key, and one above the block
 * size. */
CHECK_CASE(mac_is_hmac_sha256)
{
    uint8_t key[131];

    memset(key, 0xaa, sizeof key);
    check_mac(DL_LITERAL("Jefe"), DL_LITERAL("what do ya want for nothing?"),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    check_mac((dl_bytes){key, sizeof key},
              DL_LITERAL("Test Using Larger Than Block-Size Key - Hash Key First"),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

CHECK_CASE(macs_are_compared_whole)
{
    dl_secret *secret = secret_of(DL_LITERAL("token"));
    uint8_t one[DL_MAC_SIZE];
    uint8_t other[DL_MAC_SIZE];

    CHECK_OK(dl_secret_mac(secret, DL_LITERAL("message"), one));
    memcpy(other, one, sizeof other);
    CHECK(dl_secret_mac_equal(one, other));
    for (size_t i = 0; i < sizeof other; i++) {
        other[i] ^= 1;
        CHECK(!dl_secret_mac_equal(one, other));
        other[i] ^= 1;
    }
    dl_secret_unref(secret);
}

CHECK_CASE(tokens_have_a_size)
{
    static uint8_t long_token[DL_TOKEN_LIMIT + 1];
    dl_secret *secret = NULL;

    CHECK_STATUS(dl_secret_new((dl_bytes){0}, &secret), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "token is empty");
    CHECK_STATUS(dl_secret_new((dl_bytes){long_token, sizeof long_token}, &secret),
                 DL_INVALID);
    CHECK(secret == NULL);
    CHECK_OK(dl_secret_new((dl_bytes){long_token, DL_TOKEN_LIMIT}, &secret));
    dl_secret *again = dl_secret_ref(secret);
    dl_secret_unref(secret);
    dl_secret_unref(again);
    dl_secret_unref(dl_secret_ref(NULL));
}

CHECK_CASE(random_bytes_differ)
{
    uint8_t one[32] = {0};
    uint8_t other[32] = {0};

    CHECK_OK(dl_random(one, sizeof one));
    CHECK_OK(dl_random(other, sizeof other));
    CHECK(memcmp(one, other, sizeof one) != 0);
}

/* A secret equals another one if both compute the same. */
static bool
is_secret(dl_secret *secret, const char *token)
{
    dl_secret *other = secret_of(dl_bytes_of(token));
    uint8_t macs[2][DL_MAC_SIZE];

    CHECK_OK(dl_secret_mac(secret, DL_LITERAL("m"), macs[0]));
    CHECK_OK(dl_secret_mac(other, DL_LITERAL("m"), macs[1]));
    dl_secret_unref(other);
    return dl_secret_mac_equal(macs[0], macs[1]);
}

static void
set_variables(const char *token, const char *file)
{
    unsetenv("DISTLITE_TOKEN");
    unsetenv("DISTLITE_TOKEN_FILE");
    CHECK(token == NULL || setenv("DISTLITE_TOKEN", token, 1) == 0);
    CHECK(file == NULL || setenv("DISTLITE_TOKEN_FILE", file, 1) == 0);
}

static void
check_found(const char *token, const char *file, const char *expected)
{
    dl_secret *secret = NULL;

    set_variables(token, file);
    CHECK(dl_secret_is_named() == (expected != NULL));
    CHECK_OK(dl_secret_find(&secret));
    CHECK(expected == NULL ? secret == NULL : is_secret(secret, expected));
    dl_secret_unref(secret);
}

/* No refusal may show the token. */
static void
check_refused(const char *token, const char *file, const char *why)
{
    dl_secret *secret = NULL;

    set_variables(token, file);
    CHECK(dl_secret_is_named());
    CHECK_STATUS(dl_secret_find(&secret), DL_INVALID);
    CHECK(secret == NULL);
    CHECK_CONTAINS(dl_last_error()->text, why);
    CHECK(strstr(dl_last_error()->text, "secret words") == NULL);
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK(chmod(path, mode) == 0);
}

CHECK_CASE(the_environment_names_a_token)
{
    check_found(NULL, NULL, NULL);
    check_found("secret words", NULL, "secret words");
    check_found(" secret words\n", NULL, " secret words\n");
    check_refused("", NULL, "DISTLITE_TOKEN is empty");
    check_refused(NULL, "", "DISTLITE_TOKEN_FILE is empty");
    check_refused("secret words", "/dev/null", "both set");
}

CHECK_CASE(a_file_holds_a_token)
{
    char folder[] = "/tmp/distlite-secret-XXXXXX";
    char path[64];
    static char large[DL_TOKEN_LIMIT + 10];

    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/token", folder);
    check_refused(NULL, path, "No such file");
    check_refused(NULL, folder, "not a regular file");
    write_file(path, "secret words\n", 0600);
    check_found(NULL, path, "secret words");
    write_file(path, "secret words\r\n", 0400);
    check_found(NULL, path, "secret words");
    CHECK(unlink(path) == 0);
    write_file(path, "secret words\n\n", 0600);
    check_found(NULL, path, "secret words\n");
    write_file(path, "\n", 0600);
    check_refused(NULL, path, "the file is empty");
    memset(large, 'x', sizeof large - 1);
    write_file(path, large, 0600);
    check_refused(NULL, path, "the limit is");
    static const mode_t open_modes[] = {0604, 0602, 0620, 0666};
    for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
        write_file(path, "secret words", open_modes[i]);
        check_refused(NULL, path, "chmod 600");
    }
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    check_refused(NULL, path, "not a regular file");
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}
