/*
 * An MPI program: messages of many sizes round a ring, then collective and one-sided operations, all checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "rank %d: %s\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void ring(int length)
{
	unsigned char *out = malloc(length + 1), *in = malloc(length + 1);
	int left = (rank + size - 1) % size, right = (rank + 1) % size;
	for (int i = 0; i < length; i++)
		out[i] = (unsigned char)(rank * 31 + i * 7 + length);
	MPI_Sendrecv(out, length, MPI_BYTE, right, 1, in, length, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < length; i++)
		check(in[i] == (unsigned char)(left * 31 + i * 7 + length), "a message is not what was sent");
	free(out);
	free(in);
}

static void collective(void)
{
	long mine = rank + 1, sum = 0;
	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	check(sum == (long)size * (size + 1) / 2, "the sum is wrong");
	enum { EACH = 5000 };
	int *out = malloc(sizeof(int) * EACH * size), *in = malloc(sizeof(int) * EACH * size);
	for (int i = 0; i < EACH * size; i++)
		out[i] = rank * 1000000 + i;
	MPI_Alltoall(out, EACH, MPI_INT, in, EACH, MPI_INT, MPI_COMM_WORLD);
	for (int peer = 0; peer < size; peer++)
		for (int i = 0; i < EACH; i++)
			check(in[peer * EACH + i] == peer * 1000000 + rank * EACH + i, "the exchange is wrong");
	free(out);
	free(in);
}

static void one_sided(void)
{
	long *window, one = 1, before;
	MPI_Win win;
	MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	*window = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < 100; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		check(*window == 100L * size, "the counter is wrong");
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int length = 1; length <= 1 << 22; length *= 4)
		for (int round = 0; round < 5; round++)
			ring(length);
	collective();
	one_sided();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("all right with %d ranks\n", size);
	MPI_Finalize();
	return 0;
}
