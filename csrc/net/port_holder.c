/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/port_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENING 0x0a /* TCP_LISTEN in /proc/net/tcp */
#define COMMAND_SIZE 80
#define PATH_SIZE 600

/* Returns the inode of the listening socket, 0 if there is none.  Columns of
 * /proc/net/tcp: number, local address and port, remote ones, state, queues, timer,
 * retransmissions, user, timeout, inode. */
static uint64_t
find_inode(const char *path, uint16_t port)
{
    FILE *table = fopen(path, "re");
    char line[512];
    uint64_t found = 0;

    while (table != NULL && found == 0 && fgets(line, sizeof line, table) != NULL) {
        unsigned local;
        unsigned state;
        uint64_t inode;
        if (sscanf(line,
                   "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u "
                   "%*u %" SCNu64,
                   &local, &state, &inode)
                == 3
            && local == port && state == LISTENING) {
            found = inode;
        }
    }
    if (table != NULL) {
        fclose(table);
    }
    return found;
}

static bool
has_socket(const char *pid, uint64_t inode)
{
    char path[PATH_SIZE];
    char wanted[40];
    char link[40];
    bool found = false;

    snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, entry->d_name);
        ssize_t size = readlink(path, link, sizeof link - 1);
        if (size > 0) {
            link[size] = '\0';
            found = strcmp(link, wanted) == 0;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

/* Reads the command line, with blanks between its words and question marks for anything
 * but printable ASCII. */
static void
read_command(const char *pid, char *command, size_t room)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t size = file == NULL ? 0 : fread(command, 1, room - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    while (size > 0 && command[size - 1] == '\0') {
        size--;
    }
    command[size] = '\0';
    for (size_t i = 0; i < size; i++) {
        bool is_printable = command[i] >= ' ' && command[i] <= '~';
        command[i] = command[i] == '\0' ? ' ' : is_printable ? command[i] : '?';
    }
}

bool
dl_port_holder(uint16_t port, char *text, size_t size)
{
    char command[COMMAND_SIZE];
    uint64_t inode = find_inode("/proc/net/tcp", port);
    struct dirent *entry;
    bool found = false;

    inode = inode != 0 ? inode : find_inode("/proc/net/tcp6", port);
    DIR *processes = inode == 0 ? NULL : opendir("/proc");
    while (processes != NULL && !found && (entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])
            && has_socket(entry->d_name, inode)) {
            read_command(entry->d_name, command, sizeof command);
            snprintf(text, size, "pid %s (%s)", entry->d_name, command);
            found = true;
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
    return found;
}
