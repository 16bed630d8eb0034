/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/interface.h"

#include <arpa/inet.h>

#include "check.h"

static dl_address
address_of(const char *text)
{
    dl_address address = {0};

    if (strchr(text, ':') != NULL) {
        address.socket.ip6.sin6_family = AF_INET6;
        address.size = sizeof address.socket.ip6;
        CHECK(inet_pton(AF_INET6, text, &address.socket.ip6.sin6_addr) == 1);
    } else {
        address.socket.ip4.sin_family = AF_INET;
        address.size = sizeof address.socket.ip4;
        CHECK(inet_pton(AF_INET, text, &address.socket.ip4.sin_addr) == 1);
    }
    return address;
}

static const char *const machine[][2] = {
    {"lo", "127.0.0.1"},  {"docker0", "172.17.0.1"},
    {"eth0", "10.0.0.5"}, {"eth1", "10.1.0.5"},
    {"lo", "::1"},        {"eth0", "fd00::5"},
    {"ib0", "fd01::5"},
};

#define MACHINE_SIZE (sizeof machine / sizeof *machine)

static dl_status
choose(const char *wanted, const char *best, const char *route,
       dl_address chosen[DL_INTERFACES_LIMIT], int *count)
{
    dl_interface interfaces[MACHINE_SIZE] = {0};
    dl_address known[2];
    dl_interface_choice choice = {
        .interfaces = interfaces, .count = MACHINE_SIZE, .wanted = wanted};

    for (size_t i = 0; i < MACHINE_SIZE; i++) {
        strcpy(interfaces[i].name, machine[i][0]);
        interfaces[i].address = address_of(machine[i][1]);
    }
    if (best != NULL) {
        known[0] = address_of(best);
        choice.best = &known[0];
    }
    if (route != NULL) {
        known[1] = address_of(route);
        choice.route = &known[1];
    }
    return dl_interface_choose(&choice, chosen, count);
}

/* `expected`: addresses with a blank between them. */
static void
check_choice(const char *wanted, const char *best, const char *route,
             const char *expected)
{
    dl_address chosen[DL_INTERFACES_LIMIT];
    char found[512] = "";
    int count;

    CHECK_OK(choose(wanted, best, route, chosen, &count));
    for (int i = 0; i < count; i++) {
        char text[DL_ADDRESS_TEXT_SIZE];
        dl_address_text(&chosen[i], text);
        *strrchr(text, ':') = '\0';
        char *start = text + strspn(text, "[");
        start[strcspn(start, "]")] = '\0';
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s",
                 i > 0 ? " " : "", start);
    }
    CHECK_TEXT(found, expected);
}

CHECK_CASE(a_connection_knows_best_then_the_route_then_any_but_loopback)
{
    check_choice(NULL, "10.1.0.5", "10.0.0.5", "10.1.0.5");
    check_choice("", "fd01::5", "10.0.0.5", "fd01::5");
    check_choice(NULL, "::ffff:10.1.0.5", NULL, "10.1.0.5");
    check_choice(NULL, "127.0.0.1", "10.0.0.5", "10.0.0.5");
    check_choice(NULL, NULL, "fd00::5", "fd00::5");
    check_choice(NULL, NULL, NULL, "172.17.0.1");
}

CHECK_CASE(all_that_are_named_are_taken_in_order)
{
    check_choice("eth1", "10.0.0.5", NULL, "10.1.0.5");
    check_choice("ib0, eth1,docker0", NULL, NULL, "fd01::5 10.1.0.5 172.17.0.1");
    check_choice("eth1,eth1", NULL, NULL, "10.1.0.5 10.1.0.5");
    check_choice("lo", "10.0.0.5", NULL, "127.0.0.1");
    /* Of several addresses, that of the family which others were reached by. */
    check_choice("eth0", NULL, NULL, "10.0.0.5");
    check_choice("eth0", "fd01::5", NULL, "fd00::5");
}

CHECK_CASE(networks_may_stand_for_names)
{
    check_choice("10.1.0.0/16", NULL, NULL, "10.1.0.5");
    check_choice("10.0.0.0/15", "10.1.0.5", NULL, "10.1.0.5");
    check_choice("10.0.0.0/16", "10.1.0.5", NULL, "10.0.0.5");
    check_choice("10.1.0.0/16,fd00::/15", NULL, NULL, "10.1.0.5 fd00::5");
    check_choice("0.0.0.0/0", "10.1.0.5", NULL, "10.1.0.5");
}

CHECK_CASE(a_filter_that_matches_nothing_shows_the_choices)
{
    static const char *const hopeless[] = {
        "eth7",      "eth0,eth7",   "^eth0",  "eth0,192.168.0.0/16", "10.2.0.0/16",
        "10.0.0.0/", "10.0.0.0/33", "eth0/8", "10.0.0.0/8x",
    };
    dl_address chosen[DL_INTERFACES_LIMIT];
    int count;

    for (size_t i = 0; i < sizeof hopeless / sizeof *hopeless; i++) {
        CHECK_STATUS(choose(hopeless[i], NULL, NULL, chosen, &count), DL_INVALID);
        CHECK_CONTAINS(dl_last_error()->text, hopeless[i]);
        CHECK_CONTAINS(dl_last_error()->text, "docker0 172.17.0.1, eth0 10.0.0.5");
        CHECK_CONTAINS(dl_last_error()->text, "ib0 fd01::5");
    }
    CHECK_STATUS(choose("eth0,eth7", NULL, NULL, chosen, &count), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text,
                   "no interface that is up on this host is named eth7; interfaces "
                   "that are up: lo 127.0.0.1");
    CHECK_STATUS(choose("10.2.0.0/16", NULL, NULL, chosen, &count), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "has an address in 10.2.0.0/16; ");
}

CHECK_CASE(a_list_without_end_is_refused)
{
    dl_address chosen[DL_INTERFACES_LIMIT];
    char list[5 * (DL_INTERFACES_LIMIT + 1) + 1] = "";
    int count;

    for (int i = 0; i < DL_INTERFACES_LIMIT; i++) {
        strcat(list, "eth0,");
    }
    CHECK_OK(choose(list, NULL, NULL, chosen, &count));
    CHECK_EQUAL(count, DL_INTERFACES_LIMIT);
    strcat(list, "eth1");
    CHECK_STATUS(choose(list, NULL, NULL, chosen, &count), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "lists more than 16 interfaces");
}

CHECK_CASE(this_machine_has_an_address)
{
    dl_interface *interfaces;
    dl_address addresses[DL_INTERFACES_LIMIT];
    int address_count;
    size_t count;
    bool has_loopback = false;

    CHECK_OK(dl_interface_list(&interfaces, &count));
    for (size_t i = 0; i < count; i++) {
        has_loopback |= dl_address_is_loopback(&interfaces[i].address);
    }
    CHECK(has_loopback);
    free(interfaces);
    unsetenv(DL_INTERFACE_VARIABLE);
    CHECK_OK(dl_interface_addresses(NULL, addresses, &address_count));
    setenv(DL_INTERFACE_VARIABLE, "lo", 1);
    CHECK_OK(dl_interface_addresses(NULL, addresses, &address_count));
    CHECK(dl_address_is_loopback(&addresses[0]));
    setenv(DL_INTERFACE_VARIABLE, "no-such-0", 1);
    CHECK_STATUS(dl_interface_addresses(NULL, addresses, &address_count), DL_INVALID);
}

CHECK_CASE(running_out_of_memory_is_an_error)
{
    dl_interface *interfaces;
    dl_address addresses[DL_INTERFACES_LIMIT];
    int address_count;
    size_t count;

    dl_check_fail_allocation_at(1);
    dl_status status = dl_interface_list(&interfaces, &count);
    dl_check_fail_allocation_at(0);
    CHECK_STATUS(status, DL_NO_MEMORY);
    CHECK_OK(dl_interface_addresses(NULL, addresses, &address_count));
}
