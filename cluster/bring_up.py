"""How a cluster comes up: what is missing of it is made, in the order in which its parts need each other."""

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from cluster import (
    addon_parts,
    build,
    control_plane,
    credentials,
    fake_nodes,
    image,
    network,
    ports,
    processes,
    real_node,
)
from cluster.addons import ADDONS, chosen, had
from cluster.api import Api, ApiError, healthy
from cluster.control_plane import Part
from cluster.errors import ClusterError, Different, PartFailed, PortTaken, last_lines
from cluster.folder import Folder, Options, Record, write_whole
from cluster.network import addresses_in
from cluster.places import cache_place, lock_file
from cluster.real_node import RealNode

READY_WITHIN_S = 300.0
LOOK_S = 0.05
GRACE_S = 10.0
TRIES = 3
NEEDS_BYTES = 512 << 20
MOST_FAKE_NODES = 20_000
_TAKEN = "address already in use"


def wanted_parts(options: Options) -> list[str]:
    parts = ["etcd", "apiserver", "controllers", "scheduler"]
    if options.fake_nodes:
        parts.append("kwok")
    if options.kubelet:
        parts += ["node", "containerd", "kubelet", "proxy", "names"]
    return [*parts, *options.addons]


class BringUp:
    def __init__(self, folder: Folder, asked: Options, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._asked = asked
        self._say = say
        self._programs: dict[str, str] = {}
        self._archives: list[Path] = []

    def prepare(self) -> None:
        """What can be known or needs long, before anything of the cluster is made or locked."""
        _check_options(self._asked)
        record = self._folder.read()
        options = merged(self._folder.name, record, self._asked)
        if options.kubelet:
            real_node.check_machine()
        if record is None:
            _check_room(self._folder.path)
        wanted = [
            build.KUBERNETES,
            *([build.PAUSE] if options.kubelet else []),
            *([build.KWOK] if options.fake_nodes else []),
        ]
        known = record.programs if record else {}
        for program in wanted:
            there = known.get(program.name, "")
            self._programs[program.name] = there if os.path.exists(there) else str(build.built(program, self._say))
        for name in options.addons:
            there = known.get(name, "")
            kubernetes = Path(self._programs["kubernetes"])
            self._programs[name] = there if os.path.exists(there) else str(had(ADDONS[name], kubernetes, self._say))
        if options.kubelet:
            pause = Path(self._programs["pause"])
            self._archives = [image.pause_archive(pause), image.busybox_archive(), image.python_archive()]

    def run(self) -> Record:
        """With the folder's lock held."""
        known = self._folder.read()
        if known is not None:
            options = merged(self._folder.name, known, self._asked)
            return self._make(replace(known, options=options, programs={**known.programs, **self._programs}))
        for left in reversed(range(TRIES)):
            try:
                return self._make(self._choose())
            except PartFailed as failed:
                if not any(_TAKEN in line for line in failed.lines):
                    raise
                if self._asked.port or not left:
                    raise PortTaken(self._asked.port) if self._asked.port else failed from failed
                # Another program was quicker between our look and the part's start: with other ports, again.
                processes.stop_all(self._folder.path)
                shutil.rmtree(self._folder.etcd, ignore_errors=True)  # what was installed leads to the old ports
        raise AssertionError("the last try raises")

    def url(self, record: Record) -> str:
        return f"https://{_address(record)}:{record.ports['api']}"

    def _choose(self) -> Record:
        """One cluster at a time chooses; the bridge and the written record are what the next one sees."""
        self._folder.make()
        with lock_file(cache_place() / "choosing.lock"):
            net = network.choose() if self._asked.kubelet else ""
            if net:
                network.make_bridge(self._folder, addresses_in(net))
            address = addresses_in(net).host if net else "127.0.0.1"
            chosen = ports.choose(self._folder.path.parent, address, self._asked.port)
            record = Record(self._asked, chosen, net, self._programs)
            self._folder.write(record)
        return record

    def _make(self, record: Record) -> Record:
        self._folder.make()
        self._folder.write(record)
        address = _address(record)
        if record.network:
            network.make_bridge(self._folder, addresses_in(record.network))
        node_address = addresses_in(record.network).node if record.network else ""
        credentials.write_certificates(self._folder, Path(self._programs["kubernetes"]), address, node_address)
        credentials.write_kubeconfigs(self._folder, self.url(record), record.options)
        with ThreadPoolExecutor(1) as beside:
            node = beside.submit(self._make_node, record) if record.network else None
            self._make_control_plane(record)
            self._make_nodes(record, node)
        if record.options.addons:
            self._make_addons(record)
        return record

    def _make_control_plane(self, record: Record) -> None:
        kubernetes, address = Path(self._programs["kubernetes"]), _address(record)
        began = time.monotonic()
        etcd = control_plane.etcd(self._folder, record, kubernetes)
        apiserver = control_plane.apiserver(self._folder, record, kubernetes, address)
        self._start(etcd, "127.0.0.1")
        self._start(apiserver, address)
        self._await(apiserver, address)
        if record.options.addons:
            self._define_addons(record)
        others = [
            control_plane.controllers(self._folder, record, kubernetes),
            control_plane.scheduler(self._folder, record, kubernetes),
        ]
        for part in others:
            self._start(part, "127.0.0.1")
        if record.options.fake_nodes:
            self._start(fake_nodes.kwok(self._folder, record, Path(self._programs["kwok"])), "127.0.0.1")
        for part in others:
            self._await(part, "127.0.0.1")
        self._say(f"control plane ready after {time.monotonic() - began:.1f} s: {self.url(record)}")

    def _make_node(self, record: Record) -> RealNode:
        """As far as it goes without an API server; beside the control plane, which needs as long."""
        node = RealNode(self._folder, record, Path(self._programs["kubernetes"]))
        node.open(Path(self._programs["pause"]))
        if "containerd" not in processes.parts(self._folder.path):
            node.start_containerd()
            for archive in self._archives:
                node.load_once(archive)
        return node

    def _make_nodes(self, record: Record, made: Future[RealNode] | None) -> None:
        began = time.monotonic()
        with ExitStack() as stack:
            apis = [
                Api(_address(record), record.ports["api"], self._folder.certificates)
                for _ in range(fake_nodes.AT_A_TIME)
            ]
            for api in apis:
                stack.callback(api.close)
            if made is not None:
                node = made.result()
                there = processes.parts(self._folder.path)
                if "kubelet" not in there:
                    node.start_kubelet()
                node.start_services(there)
                node.await_ready(apis[0])
                self._say(f"real node ready after {time.monotonic() - began:.1f} s more")
            _await_account(apis[0])
            if record.options.fake_nodes:
                began = time.monotonic()
                wanted, gpus, port = record.options.fake_nodes, record.options.gpus, record.ports["kwok"]
                count = fake_nodes.add(apis, wanted, gpus, bool(record.network), port)
                if count:
                    self._say(f"{count} fake nodes ready after {time.monotonic() - began:.1f} s more")

    def _define_addons(self, record: Record) -> None:
        """All of them before the first starts, which may look for what the others define."""
        wanted = [ADDONS[name] for name in record.options.addons if not self._folder.installed(name).exists()]
        objects = [addon_parts.objects(self._folder, record, one) for one in wanted]
        with closing(Api(_address(record), record.ports["api"], self._folder.certificates)) as api:
            for made in objects:
                addon_parts.define(api, made)
            for made in objects:
                addon_parts.await_defined(api, made)
        if wanted:
            # Those that run look for new kinds, whose objects they would delete, every half minute only.
            there = [one for one in processes.find(self._folder.path) if one.part == "controllers"]
            processes.stop(there, self._folder.path, GRACE_S)

    def _make_addons(self, record: Record) -> None:
        began = time.monotonic()
        wanted = [ADDONS[name] for name in record.options.addons]
        parts = [addon_parts.part(self._folder, record, one) for one in wanted]
        for part in parts:
            self._start(part, "127.0.0.1")
        for part in parts:
            self._await(part, "127.0.0.1")
        new = [one for one in wanted if not self._folder.installed(one.name).exists()]
        with closing(Api(_address(record), record.ports["api"], self._folder.certificates)) as api:
            for one in new:
                addon_parts.ask(api, addon_parts.objects(self._folder, record, one), one)
                write_whole(self._folder.installed(one.name), "")
        if new:
            names = ", ".join(one.name for one in new)
            self._say(f"{names} ready after {time.monotonic() - began:.1f} s more")

    def _start(self, part: Part, address: str) -> None:
        if part.name in processes.parts(self._folder.path):
            return
        if not ports.is_free(part.port, address):
            raise (
                PortTaken(part.port)
                if part.port == self._asked.port
                else PartFailed(part.name, "cannot start", [_TAKEN])
            )
        processes.start(self._folder.path, part.name, part.argv, self._folder.log(part.name))

    def _await(self, part: Part, address: str) -> None:
        until = time.monotonic() + READY_WITHIN_S
        while not healthy(address, part.port, part.ready, self._folder.certificates):
            # The API server ends when it finds no etcd: whose log says why is the first that ended.
            for name in ("etcd", part.name):
                if name not in processes.parts(self._folder.path):
                    raise PartFailed(name, "ended", last_lines(self._folder.log(name)))
            if time.monotonic() > until:
                what = f"is not ready after {READY_WITHIN_S:.0f} s"
                raise PartFailed(part.name, what, last_lines(self._folder.log(part.name)))
            time.sleep(LOOK_S)


def merged(name: str, record: Record | None, asked: Options) -> Options:
    """What a cluster shall be that may be there already: fake nodes and addons can be added, the rest is as it was."""
    if record is None:
        return asked
    there = record.options
    different = (asked.kubelet and not there.kubelet) or (asked.port and asked.port != record.ports["api"])
    if asked.fake_nodes:
        different = different or asked.fake_nodes < there.fake_nodes or (there.fake_nodes and asked.gpus != there.gpus)
        different = different or (asked.fake_nodes > there.fake_nodes and there.kubelet)
    # One that was made before there were addons has no ports and no certificates for them.
    different = different or not set(asked.addons) <= set(record.ports)
    if different:
        raise Different(name, there.words(), asked.words())
    there = replace(there, addons=chosen([*there.addons, *asked.addons]))
    if asked.fake_nodes > there.fake_nodes:
        return replace(there, fake_nodes=asked.fake_nodes, gpus=asked.gpus)
    return there


def _address(record: Record) -> str:
    """Loopback, or the bridge's: pods must reach it too."""
    return addresses_in(record.network).host if record.network else "127.0.0.1"


def _check_options(asked: Options) -> None:
    if not 0 <= asked.fake_nodes <= MOST_FAKE_NODES:
        raise ClusterError(f"{asked.fake_nodes} fake nodes were asked for; 0 to {MOST_FAKE_NODES} can be had.")
    if asked.gpus < 0 or (asked.gpus and not asked.fake_nodes):
        raise ClusterError(
            f"{asked.gpus} GPUs a node were asked for without fake nodes to have them.", "Add --fake-nodes."
        )
    if asked.port and not 1024 <= asked.port <= 65535:
        raise ClusterError(f"port {asked.port} was asked for; 1024 to 65535 can be had.")


def _check_room(path: Path) -> None:
    there = next(folder for folder in path.parents if folder.exists())
    free = shutil.disk_usage(there).free
    if free < NEEDS_BYTES:
        raise ClusterError(
            f"a cluster needs {NEEDS_BYTES >> 20} MiB of disk; {there} has {free >> 20} MiB left.",
            "Make room, or name another place with --dir.",
        )


def _await_account(api: Api) -> None:
    """Before the default account is there, no pod can be created."""
    until = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
            return
        except ApiError as error:
            if error.status != 404 or time.monotonic() > until:
                raise
        time.sleep(LOOK_S)
