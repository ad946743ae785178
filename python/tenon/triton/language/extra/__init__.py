from .. import name

libdevice = name("triton.language.extra.libdevice")
cuda = name("triton.language.extra.cuda")
