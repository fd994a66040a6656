import ignite.distributed as idist


def main(_local_rank):
    for rank in range(idist.get_world_size()):
        if idist.get_rank() == rank:
            print("turn of", rank)
        idist.barrier()


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
