"""`python -m cluster`: clusters from the command line."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from cluster import build
from cluster.addons import ADDONS, chosen, had
from cluster.cluster import Cluster, clusters, down, up
from cluster.errors import ClusterError
from cluster.folder import Folder
from cluster.places import cluster_folder, clusters_place


def main(argv: Sequence[str] | None = None) -> int:
    # Like Ctrl-C, so that who ends us politely in the middle of `up` leaves nothing behind.
    signal.signal(signal.SIGTERM, _interrupt)
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster", description="Real Kubernetes clusters on this machine, for tests and demos."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--dir", type=Path, help=f"where clusters have their folders (default: {clusters_place()})")

    addons = argparse.ArgumentParser(add_help=False)
    said = f"a controller beside its own, once or more: {', '.join(ADDONS)}"
    addons.add_argument("--with", action="append", default=[], dest="addons", metavar="ADDON", help=said)

    one = commands.add_parser("up", parents=[place, addons], help="bring one up, or what is missing of it")
    one.add_argument("name", metavar="NAME")
    one.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="nodes that kwok plays")
    one.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs of each fake node (nvidia.com/gpu)")
    one.add_argument("--kubelet", action="store_true", help="one real node, with containerd; needs root")
    one.add_argument("--port", type=int, default=0, help="of the API server (default: a free one)")
    one.set_defaults(run=_up)

    one = commands.add_parser("down", parents=[place], help="take them down, and remove all that is theirs")
    one.add_argument("names", metavar="NAME", nargs="*")
    one.add_argument("--all", action="store_true", help="every cluster of this place")
    one.set_defaults(run=_down)

    one = commands.add_parser("list", parents=[place], help="those that are there, and how they are")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=_list)

    one = commands.add_parser("kubectl", parents=[place], help="kubectl, as administrator of a cluster")
    one.add_argument("name", metavar="NAME")
    one.add_argument("rest", metavar="...", nargs=argparse.REMAINDER)
    one.set_defaults(run=_kubectl)

    one = commands.add_parser("load", parents=[place], help="import an image archive into the real node")
    one.add_argument("name", metavar="NAME")
    one.add_argument("archive", type=Path, metavar="ARCHIVE", help="as `docker save` or `podman save` writes it")
    one.set_defaults(run=_load)

    one = commands.add_parser(
        "build", parents=[addons], help="only build what clusters are made of, and keep it in the cache"
    )
    one.add_argument("--check", action="store_true", help="build nothing; the exit code says whether it was built")
    one.set_defaults(run=_build)
    return parser


def _up(args: argparse.Namespace) -> int:
    made = up(
        args.name,
        fake_nodes=args.fake_nodes,
        gpus=args.gpus,
        kubelet=args.kubelet,
        port=args.port,
        addons=args.addons,
        place=args.dir,
        say=_say,
    )
    where = f" --dir {args.dir}" if args.dir else ""
    print(made.kubeconfig)
    print(f"  use it     export KUBECONFIG={made.kubeconfig}", file=sys.stderr)
    print(f"  look       python -m cluster kubectl{where} {made.name} get nodes", file=sys.stderr)
    print(f"  take down  python -m cluster down{where} {made.name}", file=sys.stderr)
    return 0


def _down(args: argparse.Namespace) -> int:
    names = [one.name for one in clusters(args.dir)] if args.all else args.names
    if not names and not args.all:
        raise ClusterError("no cluster was named.", "python -m cluster down NAME, or --all")
    for name in names:
        print(f"{name} is down" if down(name, place=args.dir) else f"there is no cluster {name}")
    return 0


def _list(args: argparse.Namespace) -> int:
    found = clusters(args.dir)
    if args.json:
        print(json.dumps([_facts(one) for one in found], indent=2))
    elif not found:
        print(f"no clusters in {clusters_place(args.dir)}")
    for one in [] if args.json else found:
        missing = one.missing()
        state = f"damaged, without {', '.join(missing)}" if missing else "up" if one.ready() else "not ready"
        print(f"{one.name}  {state}  {one.url}  {one.options.words()}\n  {one.kubeconfig}")
    return 0


def _facts(one: Cluster) -> dict[str, object]:
    return {
        "name": one.name,
        "url": one.url,
        "kubeconfig": str(one.kubeconfig),
        "folder": str(one.folder),
        "parts": one.parts(),
        "missing": one.missing(),
        "ready": one.ready(),
    }


def _kubectl(args: argparse.Namespace) -> int:
    folder = Folder(cluster_folder(args.name, args.dir))
    record = folder.read()
    if record is None:
        raise ClusterError(f"there is no cluster {args.name}.", f"python -m cluster up {args.name}")
    binary = record.programs["kubernetes"]
    os.execve(binary, [binary, "kubectl", *args.rest], {**os.environ, "KUBECONFIG": str(folder.kubeconfig)})


def _load(args: argparse.Namespace) -> int:
    found = next((one for one in clusters(args.dir) if one.name == args.name), None)
    if found is None:
        raise ClusterError(f"there is no cluster {args.name}.", f"python -m cluster up {args.name} --kubelet")
    found.load(args.archive)
    return 0


def _build(args: argparse.Namespace) -> int:
    if args.check:
        return 0 if all(map(build.was_built, (build.KUBERNETES, build.PAUSE, build.KWOK))) else 1
    names = chosen(args.addons)
    kubernetes, *_ = [_printed(build.built(one, _say)) for one in (build.KUBERNETES, build.PAUSE, build.KWOK)]
    for name in names:
        _printed(had(ADDONS[name], kubernetes, _say))
    return 0


def _printed(path: Path) -> Path:
    print(path, flush=True)
    return path


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
