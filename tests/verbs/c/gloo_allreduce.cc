// A rank of Gloo's collectives over its ibverbs transport: gloo_allreduce RANK RANKS DIRECTORY
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using Context = std::shared_ptr<gloo::rendezvous::Context>;

// A buffer must not end before its sends have completed, which Gloo tells nobody: all are kept.
static std::vector<std::unique_ptr<gloo::Algorithm>> algorithms;
static std::vector<std::unique_ptr<std::vector<double>>> buffers;

static std::vector<double> &buffer(size_t count)
{
	buffers.push_back(std::make_unique<std::vector<double>>(count));
	return *buffers.back();
}

template <typename Algorithm, typename... Options>
static void run(const Context &context, std::vector<double> &data, Options... options)
{
	algorithms.push_back(
		std::make_unique<Algorithm>(context, std::vector<double *>{data.data()}, data.size(), options...));
	algorithms.back()->run();
}

// Whether each element is the sum over the ranks.
template <typename Algorithm> static bool sums(const Context &context, size_t count)
{
	std::vector<double> &data = buffer(count);
	double ranks = context->size;

	for (size_t i = 0; i < count; i++)
		data[i] = double(i) + context->rank;
	run<Algorithm>(context, data);
	for (size_t i = 0; i < count; i++)
		if (data[i] != ranks * double(i) + ranks * (ranks - 1) / 2)
			return false;
	return true;
}

static bool is_spread(const Context &context, size_t count)
{
	std::vector<double> &data = buffer(count);
	int root = context->size - 1;

	data.assign(count, context->rank);
	run<gloo::BroadcastOneToAll<double>>(context, data, root);
	for (double element : data)
		if (element != root)
			return false;
	return true;
}

static bool all_right(const Context &context)
{
	for (size_t count : {1, 1000, 300000})
		for (int round = 0; round < 3; round++)
			if (!sums<gloo::AllreduceRing<double>>(context, count) ||
			    !sums<gloo::AllreduceRingChunked<double>>(context, count) ||
			    !sums<gloo::AllreduceHalvingDoubling<double>>(context, count) || !is_spread(context, count))
				return false;
	return true;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), atoi(argv[2]));
	gloo::rendezvous::FileStore store(argv[3]);
	auto device = gloo::transport::ibverbs::CreateDevice({"softrnic0", 1, 0});

	context->connectFullMesh(store, device);
	if (!all_right(context)) {
		puts("wrong data");
		return 1;
	}
	// Nobody leaves while others still wait for its messages.
	std::vector<std::string> everybody;
	for (int rank = 0; rank < context->size; rank++)
		everybody.push_back("done-" + std::to_string(rank));
	store.set(everybody[context->rank], {1});
	store.wait(everybody);
	puts("all right");
	fflush(stdout);
	_Exit(0);
}
