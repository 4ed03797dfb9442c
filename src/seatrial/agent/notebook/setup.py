"""What a kernel runs before the first cell: note each shell command that fails. This text runs inside the kernel.

IPython lets `!command` fail in silence. The wrappers below keep what a command printed and returned as it was; they
only note the command and its exit code, to be asked for after each cell. Variables in a command (`{name}`, `$name`) are
expanded in the frame of whoever wrote it, so the expansion is done here, one frame below, and not a second time.
"""

# Evaluated by the kernel after each cell that ended well: the failed commands since the last time, as JSON.
TAKE = "__import__('IPython').get_ipython()._seatrial_take()"

SETUP = """
def _seatrial_setup():
    import functools, json, threading
    shell = get_ipython()
    if shell is None or hasattr(shell, "_seatrial_take"):
        return
    failed, state, expand = [], threading.local(), shell.var_expand

    def note(command, code):
        if isinstance(code, int) and code != 0 and len(failed) < 100:
            failed.append([str(command)[:1000], code])

    def var_expand(command, depth=0, *args, **kwargs):
        return command if getattr(state, "busy", False) else expand(command, depth + 1, *args, **kwargs)

    def watch(run, is_output):
        @functools.wraps(run)
        def watched(cmd, *args, **kwargs):
            if getattr(state, "busy", False):
                return run(cmd, *args, **kwargs)
            depth = kwargs.get("depth", args[1] if len(args) > 1 else 0) if is_output else 0
            expanded = expand(cmd, depth + 1)
            state.busy, state.code = True, None
            try:
                result = run(expanded, *args, **kwargs)
            finally:
                state.busy = False
            note(expanded, state.code if is_output else shell.user_ns.get("_exit_code"))
            return result
        return watched

    shell.var_expand = var_expand
    for name in ("system", "system_piped", "system_raw"):
        if hasattr(shell, name):
            setattr(shell, name, watch(getattr(shell, name), False))
    try:
        from IPython.utils import _process_common as common
        handler = common.process_handler
    except (ImportError, AttributeError):
        pass
    else:
        def process_handler(cmd, callback, *args, **kwargs):
            def called(process):
                result = callback(process)
                state.code = process.returncode
                return result
            return handler(cmd, called, *args, **kwargs)
        common.process_handler = process_handler
        shell.getoutput = watch(shell.getoutput, True)

    def take():
        taken = json.dumps(failed)
        del failed[:]
        return taken
    shell._seatrial_take = take

    def leave():
        import logging, os, sys
        logging.shutdown()
        for stream in (sys.__stdout__, sys.__stderr__):
            stream is None or stream.flush()
        os._exit(0)
    # What a notebook registers comes after this and so runs before it. Behind it are only the kernel's own threads,
    # which in ipykernel 7 sometimes wait for each other for good.
    __import__("atexit").register(leave)
_seatrial_setup()
del _seatrial_setup
"""
