"""The shipped models, one file each with a ``build`` function.

There is no registry: ``conf/model/<name>.yaml`` names the function or class by its path, exactly as
a user's own model does.
"""
