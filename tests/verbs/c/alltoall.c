/* Rounds of MPI_Alltoall, each with contents of its own, which every rank checks. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 40
#define WORDS 4096

static uint32_t word(int round, int from, int to, int index)
{
	return (uint32_t)round * 1000003u + (uint32_t)from * 10007u + (uint32_t)to * 101u + (uint32_t)index;
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	uint32_t *out = malloc(sizeof(*out) * WORDS * (size_t)ranks);
	uint32_t *in = malloc(sizeof(*in) * WORDS * (size_t)ranks);
	if (!out || !in)
		return 1;
	for (int round = 0; round < ROUNDS; round++) {
		for (int to = 0; to < ranks; to++)
			for (int i = 0; i < WORDS; i++)
				out[to * WORDS + i] = word(round, rank, to, i);
		MPI_Alltoall(out, WORDS, MPI_UINT32_T, in, WORDS, MPI_UINT32_T, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			for (int i = 0; i < WORDS; i++)
				if (in[from * WORDS + i] != word(round, from, rank, i)) {
					printf("rank %d, round %d: word %d from %d is wrong\n", rank, round, i, from);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
	}
	if (rank == 0)
		printf("all right with %d ranks\n", ranks);
	MPI_Finalize();
	return 0;
}
