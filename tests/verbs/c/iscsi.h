/* What the programs on libiscsi share. */
#ifndef ISCSI_H
#define ISCSI_H

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512

static struct iscsi_context *iscsi;

/* libiscsi 1.19 reads a list that it has not set (iser_conn->tx_desc), and is lucky where new memory is zero. */
void *malloc(size_t size)
{
	return calloc(1, size);
}

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "");
		exit(1);
	}
}

/* Gets ready to connect to the portal of an address. */
static struct iscsi_url *prepare(const char *initiator, const char *text)
{
	iscsi = iscsi_create_context(initiator);
	check(iscsi != NULL, "context");
	struct iscsi_url *url = iscsi_parse_full_url(iscsi, text);
	check(url != NULL, "address");
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE);
	check(!iscsi_init_transport(iscsi, url->transport), "transport");
	return url;
}

#endif
