/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/tls.h"

#include <sys/wait.h>

#include "tls_fixture.h"

CHECK_CASE(modes_have_names)
{
    dl_tls_mode mode = DL_TLS_PSK;

    CHECK_OK(dl_tls_mode_from("cert", "tls", &mode));
    CHECK_EQUAL(mode, DL_TLS_CERT);
    CHECK_TEXT(dl_tls_mode_name(mode), "cert");
    CHECK_STATUS(dl_tls_mode_from("on", "tls", &mode), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "tls is 'on'; it can be 'off', 'psk'");
    unsetenv(DL_TLS_VARIABLE);
    CHECK_OK(dl_tls_mode_find(&mode));
    CHECK_EQUAL(mode, DL_TLS_OFF);
    setenv(DL_TLS_VARIABLE, "psk", 1);
    CHECK_OK(dl_tls_mode_find(&mode));
    CHECK_EQUAL(mode, DL_TLS_PSK);
    setenv(DL_TLS_VARIABLE, "yes", 1);
    CHECK_STATUS(dl_tls_mode_find(&mode), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_TLS is 'yes'");
}

CHECK_CASE(off_needs_nothing)
{
    dl_tls *tls;

    CHECK_OK(dl_tls_new(DL_TLS_OFF, "store", NULL, &tls));
    CHECK(tls == NULL && dl_tls_ref(tls) == NULL);
    CHECK_EQUAL(dl_tls_mode_of(tls), DL_TLS_OFF);
    dl_tls_unref(tls);
}

CHECK_CASE(psk_needs_a_token)
{
    dl_tls *tls;

    CHECK_STATUS(dl_tls_new(DL_TLS_PSK, "store", NULL, &tls), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "set DISTLITE_TOKEN");
}

CHECK_CASE(a_missing_library_is_named)
{
    dl_tls *tls;

    setenv("DISTLITE_SSL_LIBRARY", "/nowhere/libssl.so", 1);
    CHECK_STATUS(dl_tls_new(DL_TLS_CERT, "store", NULL, &tls), DL_NOT_FOUND);
    CHECK_CONTAINS(dl_last_error()->text, "OpenSSL's libssl, which a token");
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_SSL_LIBRARY=/nowhere/libssl.so");
}

static void
check_variable(const char *variable, const char *value, const char *text)
{
    dl_tls *tls;

    if (value != NULL) {
        setenv(variable, value, 1);
    } else {
        unsetenv(variable);
    }
    CHECK_STATUS(dl_tls_new(DL_TLS_CERT, "store", NULL, &tls), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, variable);
    CHECK_CONTAINS(dl_last_error()->text, text);
}

CHECK_CASE(unusable_variables_of_certificates_are_named)
{
    const char *key = "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY";
    const char *cert = "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT";
    const char *ca = "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE";

    check_variable(key, NULL, "needs this process's private key");
    check_variable(key, "/nowhere", "=/nowhere cannot be read: No such file");
    setenv(key, "/dev/null", 1);
    check_variable(cert, NULL, "needs this process's certificate");
    setenv(cert, "/dev/null", 1);
    check_variable(ca, NULL, "the authority that signs");
    setenv(ca, "/dev/null", 1);
    check_variable(cert, "/dev/null",
                   "is not a certificate in PEM format: no start line");
}

CHECK_CASE(bytes_pass_in_both_directions)
{
    ends pair = joined_ends();
    dl_buffer plain = {0};

    CHECK_EQUAL(dl_tls_output(pair.server).size, 0); /* no tickets */
    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("to the ")));
    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("server")));
    CHECK(dl_tls_output(pair.client).size > 13);
    CHECK_OK(carry(pair.client, pair.server, &plain));
    CHECK_BYTES(dl_buffer_bytes(&plain), "to the server");
    dl_buffer_clear(&plain);
    CHECK_OK(dl_tls_write(pair.server, DL_LITERAL("back")));
    CHECK_OK(carry(pair.server, pair.client, &plain));
    CHECK_BYTES(dl_buffer_bytes(&plain), "back");
    dl_buffer_fini(&plain);
    free_ends(pair);
}

/* More than the bytes after which a sender changes its key, in both directions. */
CHECK_CASE(much_data_passes_through_changes_of_the_key)
{
    ends pair = joined_ends();
    dl_buffer plain = {0};
    uint8_t *data = malloc(1 << 20);

    CHECK(data != NULL);
    for (int i = 0; i < 150; i++) {
        bool is_back = i % 2 == 1;
        dl_tls_stream *from = is_back ? pair.server : pair.client;
        memset(data, i, 1 << 20);
        CHECK_OK(dl_tls_write(from, (dl_bytes){data, 1 << 20}));
        dl_buffer_clear(&plain);
        CHECK_OK(carry(from, is_back ? pair.client : pair.server, &plain));
        CHECK(dl_bytes_equal(dl_buffer_bytes(&plain), (dl_bytes){data, 1 << 20}));
    }
    free(data);
    dl_buffer_fini(&plain);
    free_ends(pair);
}

CHECK_CASE(the_handshake_may_come_byte_by_byte)
{
    ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));
    dl_tls_stream *from = pair.client;
    dl_tls_stream *to = pair.server;
    size_t size;

    while (!dl_tls_is_up(pair.server)) {
        dl_bytes all = dl_tls_output(from);
        CHECK(all.size > 0);
        for (size_t i = 0; i < all.size; i++) {
            dl_bytes one = {all.data + i, 1};
            CHECK_OK(dl_tls_read(to, &one, NULL, 0, &size));
            CHECK_EQUAL(one.size, 0);
        }
        dl_tls_sent(from, all.size);
        dl_tls_stream *other = from;
        from = to;
        to = other;
    }
    CHECK(dl_tls_is_up(pair.client));
    free_ends(pair);
}

CHECK_CASE(plaintext_waits_for_room)
{
    ends pair = joined_ends();
    dl_tls_stream *server = pair.server;
    uint8_t room[4];
    size_t size;

    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("abcdef")));
    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("ghi")));
    dl_bytes cipher = dl_tls_output(pair.client);
    CHECK_OK(dl_tls_read(server, &cipher, room, sizeof room, &size));
    CHECK_EQUAL(size, 4);
    CHECK_OK(dl_tls_read(server, &cipher, room, sizeof room, &size));
    CHECK_EQUAL(size, 4);
    CHECK_BYTES(((dl_bytes){room, 4}), "efgh");
    CHECK_OK(dl_tls_read(server, &cipher, room, sizeof room, &size));
    CHECK_EQUAL(size, 1);
    CHECK_EQUAL(cipher.size, 0);
    CHECK_OK(dl_tls_read(server, &cipher, room, sizeof room, &size));
    CHECK_EQUAL(size, 0);
    free_ends(pair);
}

/* Both sides report the error, and neither is connected. */
static void
check_refusal(dl_tls *client, dl_tls *server, const char *told)
{
    ends pair = ends_of(client, server);

    CHECK_STATUS(carry(pair.client, pair.server, NULL), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, told);
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_TOKEN");
    CHECK(!dl_tls_is_up(pair.server));
    CHECK_STATUS(carry(pair.server, pair.client, NULL), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "the server refuses this process's key");
    CHECK(!dl_tls_is_up(pair.client));
    free_ends(pair);
}

CHECK_CASE(a_wrong_token_is_refused)
{
    check_refusal(tls_of("token", "store"), tls_of("other", "store"),
                  "the client has another key");
}

CHECK_CASE(a_key_for_another_purpose_is_refused)
{
    check_refusal(tls_of("token", "link"), tls_of("token", "store"),
                  "the client proves itself by other means");
}

CHECK_CASE(a_client_that_speaks_no_tls_is_named)
{
    ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));
    dl_bytes plain = DL_LITERAL("GET / HTTP/1.1\r\n\r\n");
    size_t size;

    CHECK_STATUS(dl_tls_read(pair.server, &plain, NULL, 0, &size), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "what the client sends is not TLS 1.3");
    free_ends(pair);
}

/* A client hello that announces more than is ever taken. */
CHECK_CASE(an_unproved_client_uses_bounded_memory)
{
    ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));
    uint8_t record[5 + 16384] = {0x16, 3, 1, 0x40, 0};
    dl_status status = DL_OK;
    size_t fed = 0;
    size_t size;

    memcpy(record + 5, "\x01\x01\xff\x00", 4); /* 130,816 bytes */
    while (status == DL_OK && fed < (1 << 20)) {
        dl_bytes cipher = {record, sizeof record};
        status = dl_tls_read(pair.server, &cipher, NULL, 0, &size);
        fed += sizeof record;
    }
    CHECK_STATUS(status, DL_PROTOCOL);
    CHECK(fed <= DL_TLS_HANDSHAKE_LIMIT + sizeof record);
    free_ends(pair);
}

/* Runs a conversation with one bit of the `number`-th byte changed; returns whether
 * there was such a byte.  Neither side may ever see another text than the one that was
 * written, and one of them has to fail if the byte is not of a record's head, where
 * OpenSSL ignores the version. */
static bool
converse_changed(size_t number)
{
    ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));
    dl_tls_stream *turns[] = {pair.client, pair.server};
    static const char *const texts[] = {"question", "answer"};
    bool has_written[] = {false, false};
    bool is_changed = false;
    bool has_failed = false;
    bool is_heard[] = {false, false};
    uint8_t bytes[4096];
    uint8_t plain[64];
    size_t passed = 0;
    size_t size;

    for (int turn = 0; turn < 6 && !has_failed; turn++) {
        int from = turn % 2;
        int to = 1 - from;
        if (dl_tls_is_up(turns[from]) && !has_written[from]) {
            CHECK_OK(dl_tls_write(turns[from], dl_bytes_of(texts[from])));
            has_written[from] = true;
        }
        dl_bytes output = dl_tls_output(turns[from]);
        CHECK(output.size <= sizeof bytes);
        if (output.size > 0) {
            memcpy(bytes, output.data, output.size);
        }
        if (number >= passed && number < passed + output.size) {
            bytes[number - passed] ^= 0x10;
            is_changed = true;
        }
        passed += output.size;
        dl_tls_sent(turns[from], output.size);
        dl_bytes cipher = {bytes, output.size};
        has_failed =
            dl_tls_read(turns[to], &cipher, plain, sizeof plain, &size) != DL_OK;
        if (!has_failed && size > 0) {
            CHECK(dl_bytes_equal((dl_bytes){plain, size}, dl_bytes_of(texts[from])));
            is_heard[to] = true;
        }
    }
    if (!is_changed) {
        CHECK(is_heard[0] && is_heard[1]);
    }
    free_ends(pair);
    return is_changed;
}

CHECK_CASE(no_changed_byte_is_taken_for_data)
{
    size_t number = 0;

    while (converse_changed(number)) {
        number++;
    }
    CHECK(number > 300);
}

CHECK_CASE(a_changed_record_is_a_lost_connection)
{
    ends pair = joined_ends();
    uint8_t bytes[256];
    uint8_t plain[64];
    size_t size;

    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("first")));
    size_t first = dl_tls_output(pair.client).size;
    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("second")));
    dl_bytes output = dl_tls_output(pair.client);
    CHECK(output.size <= sizeof bytes);
    memcpy(bytes, output.data, output.size);
    bytes[first + 5] ^= 1;
    dl_bytes cipher = {bytes, output.size};
    /* What came before is valid, and is not lost. */
    CHECK_OK(dl_tls_read(pair.server, &cipher, plain, sizeof plain, &size));
    CHECK_BYTES(((dl_bytes){plain, size}), "first");
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(dl_tls_read(pair.server, &cipher, plain, sizeof plain, &size),
                     DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "changed on their way from the client");
    }
    CHECK_STATUS(dl_tls_write(pair.server, DL_LITERAL("x")), DL_NETWORK);
    CHECK_STATUS(carry(pair.server, pair.client, NULL), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "changed on their way to the server");
    free_ends(pair);
}

/* Garbage behind a valid beginning, at every length of it. */
CHECK_CASE(garbage_ends_a_handshake)
{
    uint8_t noise[512];
    size_t size;
    uint32_t state = 1;

    for (size_t kept = 0; kept < 200; kept += 3) {
        ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));
        dl_bytes begin = {dl_tls_output(pair.client).data, kept};
        CHECK_OK(dl_tls_read(pair.server, &begin, NULL, 0, &size));
        for (size_t i = 0; i < sizeof noise; i++) {
            state = state * 1664525u + 1013904223u;
            noise[i] = (uint8_t)(state >> 24);
        }
        dl_status status = DL_OK;
        for (int i = 0; i < 300 && status == DL_OK; i++) {
            dl_bytes cipher = {noise, sizeof noise};
            status = dl_tls_read(pair.server, &cipher, NULL, 0, &size);
        }
        CHECK(status == DL_PROTOCOL || status == DL_DENIED);
        CHECK(!dl_tls_is_up(pair.server));
        free_ends(pair);
    }
}

/* In a child nothing of OpenSSL is touched; the parent goes on. */
CHECK_CASE(a_forked_child_leaves_streams_alone)
{
    ends pair = joined_ends();
    dl_buffer plain = {0};
    int status;

    pid_t child = fork();
    if (child == 0) {
        free_ends(pair);
        kill(getpid(), SIGKILL); /* no exit, at which valgrind would look for leaks */
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_OK(dl_tls_write(pair.client, DL_LITERAL("still here")));
    CHECK_OK(carry(pair.client, pair.server, &plain));
    CHECK_BYTES(dl_buffer_bytes(&plain), "still here");
    dl_buffer_fini(&plain);
    free_ends(pair);
}
