import ignite.distributed as idist


def main(_local_rank):
    if idist.get_rank() == 0:
        print("rank 0 prepares")
    idist.barrier()


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
