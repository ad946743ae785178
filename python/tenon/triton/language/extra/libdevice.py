from .. import name


def __getattr__(attribute):
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    return name(f"triton.language.extra.libdevice.{attribute}")
